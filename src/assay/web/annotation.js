// Keys press the page's own buttons; answers go by fetch, so that a lost connection loses nothing: the page
// stays on its item and tries again until the server says that the answer is on disk.
"use strict";
const said = document.getElementById("said"), trouble = document.getElementById("trouble");
const PAUSE = 200, RETRY = 1500;
let since = performance.now();

// What the page can take: a busy one hears no key. On the body, so that style and tests can tell as well.
const { dataset } = document.body;

function show(page, words) {
  const next = new DOMParser().parseFromString(page, "text/html");
  const guideline = next.getElementById("guideline");
  if (guideline) guideline.open = document.getElementById("guideline")?.open ?? false;  // as it was left
  document.querySelector("main").replaceWith(next.querySelector("main"));
  document.title = next.title;
  trouble.textContent = "";
  since = performance.now();
  const progress = document.querySelector("label[for=progress]")?.textContent ?? document.title;
  said.textContent = `${words} ${progress}`;  // never twice the same, or it would not be read out again
  document.getElementById("item")?.focus();
}

function wait(milliseconds) { return new Promise(resolve => setTimeout(resolve, milliseconds)); }

async function answered(request) {
  for (;;) {
    let answer;
    try { answer = await fetch(...request); } catch { answer = null; }
    if (answer?.ok) return answer;
    if (answer && answer.status < 500) throw new Error(await answer.text());
    trouble.textContent = answer
      ? `Not saved yet: ${await answer.text()} Trying again…`
      : "Not saved yet: the server does not answer. Keep this page open; it tries again by itself…";
    await wait(RETRY);
  }
}

async function go(request, words) {
  if (dataset.state === "busy") return;
  dataset.state = "busy";
  for (const button of document.querySelectorAll("#scores button")) button.disabled = true;
  try {
    const answer = await answered(request);
    const page = await answer.text();
    history.replaceState(null, "", answer.url);
    show(page, words);
  } catch (error) {
    trouble.textContent = `Not saved: ${error.message}`;
    for (const button of document.querySelectorAll("#scores button")) button.disabled = false;
    document.getElementById("item")?.focus();  // a disabled button has lost it
  }
  await wait(PAUSE);  // a second press meant for the last item must not judge the next
  dataset.state = "ready";
}

document.addEventListener("submit", event => {
  if (event.target.id !== "scores") return;
  event.preventDefault();
  const body = new URLSearchParams(new FormData(event.target, event.submitter));
  body.set("seconds", ((performance.now() - since) / 1000).toFixed(2));
  go([event.target.action, { method: "POST", body }], event.submitter.value ? "Saved." : "Skipped.");
});

document.addEventListener("click", event => {
  const link = event.target.closest?.("a[data-key]");
  if (!link) return;
  event.preventDefault();
  go([link.href], "Back to the one before.");
});

document.addEventListener("keydown", event => {
  if (event.key === "Escape" && event.target.id === "comment") document.getElementById("item").focus();
  const writing = event.target.closest?.("input:not([type=hidden]), textarea");
  if (writing || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  const target = document.querySelector(`[data-key="${CSS.escape(event.key.toLowerCase())}"]`);
  if (!target || dataset.state === "busy") return;
  event.preventDefault();
  if (target.id === "comment") target.focus(); else target.click();
});

dataset.state = "ready";
