"""A check as JUnit XML, for continuous integration."""

from xml.etree import ElementTree

from assay.check.result import Check


def junit(check: Check) -> str:
    """A test case per gate; an undecided gate counts as an error, not as a pass, and a part that was left out
    as skipped."""
    gates = check.gates
    suite = ElementTree.Element(
        "testsuite",
        name="assay check",
        tests=str(len(gates) + len(check.left_out)),
        failures=str(sum(gate.passed is False for gate in gates)),
        errors=str(sum(gate.passed is None for gate in gates)),
        skipped=str(len(check.left_out)),
    )
    for gate in gates:
        case = ElementTree.SubElement(suite, "testcase", classname="assay.check", name=gate.name)
        if gate.passed is not True:
            kind = "failure" if gate.passed is False else "error"
            ElementTree.SubElement(case, kind, message=gate.words, type=gate.verdict)
    for part, reason in check.left_out.items():
        case = ElementTree.SubElement(suite, "testcase", classname="assay.check", name=part)
        ElementTree.SubElement(case, "skipped", message=reason)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
