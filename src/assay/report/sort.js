// A click on a column's head sorts its table, a second click the other way round; what is missing stays last.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, table = head.closest("table");
    const column = [...head.parentElement.children].indexOf(head);
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.children[column].dataset.value?.replace("inf", "Infinity") ?? row.children[column].textContent;
    const missing = (row) => ["–", "nan"].includes(key(row));
    const order = (a, b) => {
      const x = key(a), y = key(b), difference = Number(x) - Number(y);
      return Number.isNaN(difference) ? String(x).localeCompare(String(y)) : difference;
    };
    const rows = [...table.tBodies[0].rows].sort(
      (a, b) => missing(a) - missing(b) || (missing(a) ? 0 : down ? order(b, a) : order(a, b)));
    table.tBodies[0].append(...rows);
  });
}

// Long tables can be filtered: rows that contain every word stay.
for (const table of document.querySelectorAll(".wide > table")) {
  const rows = [...table.tBodies[0].rows];
  if (rows.length <= 10) continue;
  const label = document.createElement("label"), input = document.createElement("input");
  label.className = "filter";
  input.type = "search";
  label.append("Show rows with", input);
  table.parentElement.before(label);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
    }
  });
}
