// Copy buttons, and pages that update while visible. No text from the cluster becomes markup here.
"use strict";
const AGAIN_MS = 5000;
const content = () => document.querySelector("#content");

// Copy buttons. Without a clipboard (plain http from another machine) the command is selected instead.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) {
    return;
  }
  const said = (text) => {
    button.textContent = text;
    setTimeout(() => { button.textContent = "copy"; }, 2000);
  };
  const select = () => {
    getSelection().selectAllChildren(button.previousElementSibling);
    said("selected");
  };
  if (navigator.clipboard) {
    navigator.clipboard.writeText(button.dataset.copy).then(() => said("copied"), select);
  } else {
    select();
  }
});

// The banner that the page is out of date. It stays until the console answers.
function lost(reason) {
  const banner = document.querySelector("#lost");
  const text = `${reason} This page shows old data and retries automatically.`;
  if (banner.textContent !== text) {
    banner.textContent = text;
  }
  banner.hidden = false;
}
function found() {
  document.querySelector("#lost").hidden = true;
}
function tryAgain(element) {
  if (!element.matches("[data-live]")) {
    setTimeout(() => { if (element.isConnected) { htmx.trigger(element, "renew"); } }, AGAIN_MS);
  }
}
for (const name of ["htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, (event) => {
    lost("The console does not answer.");
    tryAgain(event.detail.elt);
  });
}
document.addEventListener("htmx:beforeSwap", (event) => {
  const asker = event.detail.requestConfig.elt;
  const wanted = asker.getAttribute("hx-select");
  if (!wanted) {
    return;
  }
  const answer = new DOMParser().parseFromString(event.detail.serverResponse, "text/html");
  if (answer.querySelector(wanted)) {
    found();
    return;
  }
  event.detail.shouldSwap = false;
  const reason = answer.querySelector("[role=alert]");
  lost(reason ? reason.textContent.trim() : `The console answered ${event.detail.xhr.status}.`);
  tryAgain(asker);
});

// Updates pause while the page is hidden, a field has the focus or text is selected. They keep the focus and the scroll position.
function whyNot() {
  const active = document.activeElement;
  if (document.hidden) {
    return "hidden";
  }
  if (active && active.matches("main input, main select, main textarea")) {
    return "paused while a field has the focus";
  }
  const selection = getSelection();
  if (!selection.isCollapsed && content().contains(selection.anchorNode)) {
    return "paused while text is selected";
  }
  return "";
}
document.addEventListener("htmx:beforeRequest", (event) => {
  if (!event.target.matches("[data-live]")) {
    return;
  }
  const reason = whyNot();
  const renewal = document.querySelector("#renewal");
  if (renewal) {
    renewal.textContent = reason || renewal.dataset.text;
  }
  if (reason) {
    event.preventDefault();
  }
});
// A filter has replaced the address since the page was made.
document.addEventListener("htmx:configRequest", (event) => {
  if (event.target.matches("[data-live]")) {
    event.detail.path = location.pathname + location.search;
  }
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && content().matches("[data-live]")) {
    htmx.trigger(content(), "renew");
  }
});
const nameOf = (one) => [one.tagName, one.getAttribute("href"), one.name, one.dataset.copy, one.textContent].join("\n");
const focusable = () => [...content().querySelectorAll("a[href], button, summary")];
let kept = null;
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target !== content() || !event.detail.shouldSwap) {
    return;
  }
  const active = document.activeElement;
  const name = content().contains(active) && active !== content() ? nameOf(active) : null;
  kept = {
    name,
    index: name === null ? 0 : focusable().filter((one) => nameOf(one) === name).indexOf(active),
  };
});
document.addEventListener("htmx:afterSwap", () => {
  if (kept === null) {
    return;
  }
  const { name, index } = kept;
  kept = null;
  const same = name === null ? [] : focusable().filter((one) => nameOf(one) === name);
  if (same.length) {
    same[Math.min(Math.max(index, 0), same.length - 1)].focus({ preventScroll: true });
  }
});

// A name that is shown with codes for invisible characters is copied as it is.
document.addEventListener("copy", (event) => {
  const selection = getSelection();
  const node = selection.anchorNode;
  const name = node && (node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement).closest("[data-name]");
  if (name && selection.toString().trim() === name.textContent.trim()) {
    event.clipboardData.setData("text/plain", JSON.parse(name.dataset.name));
    event.preventDefault();
  }
});

// An open record uses the width of the table: its details move to a row of their own, and back.
document.addEventListener("toggle", (event) => {
  const details = event.target;
  const row = details.closest && details.closest(".records tr");
  if (!row || !details.matches("td > details")) {
    return;
  }
  if (details.open) {
    const more = document.createElement("tr");
    const cell = more.insertCell();
    more.className = "opened";
    cell.colSpan = row.cells.length;
    cell.append(details.querySelector(".expanded"));
    row.after(more);
  } else if (row.nextElementSibling && row.nextElementSibling.matches(".opened")) {
    details.append(row.nextElementSibling.querySelector(".expanded"));
    row.nextElementSibling.remove();
  }
}, true);

// Forms that select records: an address names only what was chosen, and the reader's zone if there is a time.
document.addEventListener("formdata", (event) => {
  if (!event.target.matches("[data-brief]")) {
    return;
  }
  for (const [name, value] of [...event.formData]) {
    const field = event.target.elements[name];
    if (value === "" || (field && field.tagName === "SELECT" && field.selectedIndex === 0)) {
      event.formData.delete(name);
    }
  }
  event.formData.delete("zone");
  if (["from", "to"].some((name) => /[:-]/.test(event.formData.get(name) || ""))) {
    event.formData.set("zone", Intl.DateTimeFormat().resolvedOptions().timeZone);
  }
});

// Streams: a button stops a search or tail. After a lost connection a search restarts and a tail continues.
const streams = new Map();
htmx.createEventSource = (address) => {
  const source = new EventSource(address);
  streams.set(source, 0);
  return source;
};
document.addEventListener("click", (event) => {
  const stop = event.target.closest("[data-stop]");
  if (stop) {
    streams.forEach((_, source) => source.close());
    document.querySelectorAll("[sse-connect]").forEach((one) => one.remove());
    stop.disabled = true;
    stop.textContent = "stopped";
  }
});
document.addEventListener("htmx:sseOpen", (event) => {
  found();
  const times = streams.get(event.detail.source) + 1;
  streams.set(event.detail.source, times);
  const rows = document.querySelector("#hits");
  if (times > 1 && rows && !rows.dataset.most) {
    rows.replaceChildren();
  }
});
document.addEventListener("htmx:sseError", (event) => {
  if (event.target.isConnected) {
    const rows = document.querySelector("#hits");
    const then = rows && rows.dataset.most ? "Records written in the meantime are not shown." : "The search will restart.";
    lost(`The connection to the console was lost. ${then}`);
  }
});
document.addEventListener("htmx:sseClose", () => {
  found();
  const stop = document.querySelector("[data-stop]");
  if (stop && !stop.disabled) {
    stop.disabled = true;
    stop.textContent = "ended";
  }
});
function trim() {
  const rows = document.querySelector("#hits[data-most]");
  while (rows && rows.children.length > Number(rows.dataset.most)) {
    rows.lastElementChild.remove();
  }
}
document.addEventListener("htmx:sseMessage", trim);
