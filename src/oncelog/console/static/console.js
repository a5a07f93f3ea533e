// Keys, copying, and pages that renew themselves only while they are seen. No text of the cluster becomes markup here.
"use strict";
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) {
    navigator.clipboard.writeText(button.dataset.copy).then(() => { button.textContent = "copied"; });
  }
  const stop = event.target.closest("[data-stop]");
  if (stop) {
    document.querySelectorAll("[sse-connect]").forEach((one) => one.remove());
    stop.disabled = true;
    stop.textContent = "stopped";
  }
});
document.addEventListener("htmx:beforeRequest", (event) => {
  const typing = document.activeElement && document.activeElement.matches("main input, main select, main textarea");
  if (event.target.matches("[data-live]") && (document.hidden || typing)) {
    event.preventDefault();
  }
});
let went = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) {
    return;
  }
  if (event.key === "/") {
    const field = document.querySelector("[data-filter]");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  } else if (event.key === "g") {
    went = Date.now();
  } else if (Date.now() - went < 1500) {
    const links = [...document.querySelectorAll("header nav a")];
    const link = links.find((one) => one.textContent.toLowerCase().startsWith(event.key));
    if (link) {
      link.click();
    }
  }
});
document.addEventListener("htmx:sseMessage", () => {
  const rows = document.querySelector("#hits[data-most]");
  while (rows && rows.children.length > Number(rows.dataset.most)) {
    rows.lastElementChild.remove();
  }
});
