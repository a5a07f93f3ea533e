// Pausing a live tail: records that arrive meanwhile wait, up to a bound; later ones are counted and reported.
// The outcome of a transaction whose record is already shown is displayed at once, so that no state is out of date.
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
    told.textContent = paused ? `${waiting.length} waiting${skipped ? `, ${skipped} later ones skipped` : ""}` : "";
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
      cell.textContent = `${skipped} records were skipped during the pause, from ${firstSkipped.replace(":", ": ")} on`;
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
    button.textContent = paused ? "Resume" : "Pause";
    button.setAttribute("aria-pressed", String(paused));
    if (!paused) {
      resume();
    }
    say();
  });
})();
