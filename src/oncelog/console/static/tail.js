// Pausing a live tail: what arrives meanwhile waits, up to a bound; what came after that is counted and told.
// The outcome of a transaction is drawn at once where its record is seen already, so that no state is out of date.
"use strict";
(() => {
  const MOST = 1000;
  const button = document.querySelector("[data-pause]");
  const told = document.getElementById("waiting");
  const rows = document.getElementById("hits");
  if (!button || !rows) {
    return;
  }
  let paused = false;
  let waiting = [];
  let settled = new Map();
  let skipped = 0;
  let firstSkipped = "";
  const say = () => {
    told.textContent = paused ? `${waiting.length} wait${skipped ? `, ${skipped} after them are skipped` : ""}` : "";
  };
  const recordOf = (html) => (html.match(/data-record="([0-9:]+)"/) || ["", ""])[1];
  document.addEventListener("htmx:sseBeforeMessage", (event) => {
    if (!paused || !event.target.matches("[data-pausable]")) {
      return;
    }
    const record = recordOf(event.detail.data);
    if (event.detail.type === "settled") {
      if (!document.getElementById(`state-${record.replace(":", "-")}`)) {
        event.preventDefault();
        if (waiting.some((one) => one.record === record)) {
          settled.set(record, event.detail.data);
        }
      }
      return;
    }
    event.preventDefault();
    if (waiting.length < MOST) {
      waiting.push({ record, html: event.detail.data });
    } else {
      firstSkipped = firstSkipped || record;
      skipped += 1;
    }
    say();
  });
  const resume = () => {
    for (const one of waiting) {
      htmx.swap(rows, one.html, { swapStyle: "afterbegin" });
      if (settled.has(one.record)) {
        htmx.swap(rows, settled.get(one.record), { swapStyle: "none" });
      }
    }
    if (skipped) {
      const row = rows.insertRow(0);
      const cell = row.insertCell();
      cell.colSpan = 6;
      cell.className = "notice warning";
      cell.textContent = `${skipped} records were skipped while this was paused, from ${firstSkipped.replace(":", ": ")} on`;
    }
    waiting = [];
    settled = new Map();
    skipped = 0;
    firstSkipped = "";
    while (rows.children.length > Number(rows.dataset.most)) {
      rows.lastElementChild.remove();
    }
  };
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Go on" : "Pause";
    button.setAttribute("aria-pressed", String(paused));
    if (!paused) {
      resume();
    }
    say();
  });
})();
