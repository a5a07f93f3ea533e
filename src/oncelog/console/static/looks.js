// How pages are read: keys, light or dark, the age of a live page, local times, values of plots, and cards on a phone.
// No text of the cluster becomes markup here.
"use strict";

// Keys: "/" the filter, "g" and a letter a page, j and k along rows, n and p along pages of a list, "?" this list.
let wentAt = 0;
const rowLinks = () => [...document.querySelectorAll("tbody tr, .problems li")]
  .filter((row) => row.checkVisibility()).map((row) => row.querySelector("a[href]")).filter(Boolean);
function moveAlongRows(step) {
  const links = rowLinks();
  const row = document.activeElement.closest("tbody tr, .problems li");
  const here = row ? links.findIndex((link) => row.contains(link)) : step > 0 ? -1 : links.length;
  const link = links[here + step];
  if (link) {
    link.focus();
    link.scrollIntoView({ block: "nearest" });
  }
}
const showHelp = () => document.querySelector("#help").showModal();
const KEYS = {
  "/": () => {
    const field = document.querySelector("[data-filter]");
    if (field) {
      field.focus();
      field.select();
    }
  },
  "?": showHelp,
  j: () => moveAlongRows(1),
  k: () => moveAlongRows(-1),
  n: () => document.querySelector("main a[rel=next]")?.click(),
  p: () => document.querySelector("main a[rel=prev]")?.click(),
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")
      || document.querySelector("dialog[open]")) {
    return;
  }
  const frame = document.querySelector("header");
  if (Date.now() - wentAt < 1500) {
    wentAt = 0;
    frame.classList.remove("keys");
    document.querySelector(`header nav a[data-key="${CSS.escape(event.key.toLowerCase())}"]`)?.click();
  } else if (event.key === "g") {
    wentAt = Date.now();
    frame.classList.add("keys");
    setTimeout(() => frame.classList.remove("keys"), 1500);
  } else if (event.key in KEYS) {
    event.preventDefault();
    KEYS[event.key]();
  }
});
document.querySelector("[data-help]")?.addEventListener("click", showHelp);
document.querySelector("[data-close]")?.addEventListener("click", () => document.querySelector("#help").close());

// Light or dark: as the system, or as chosen on this browser.
const THEMES = { "": "◐ as the system", light: "○ light", dark: "● dark" };
const themeSwitch = document.querySelector("[data-theme-switch]");
function nameTheme() {
  if (themeSwitch) {
    const theme = document.documentElement.dataset.theme || "";
    themeSwitch.textContent = THEMES[theme].slice(0, 1);
    themeSwitch.title = `Colours: ${THEMES[theme].slice(2)}`;
    themeSwitch.setAttribute("aria-label", themeSwitch.title);
  }
}
themeSwitch?.addEventListener("click", () => {
  const names = Object.keys(THEMES);
  const theme = names[(names.indexOf(document.documentElement.dataset.theme || "") + 1) % names.length];
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("oncelog-theme", theme);
  } catch {
    // The choice lasts as long as this page.
  }
  nameTheme();
});
nameTheme();

// The age of a live page stands in its heading once it is older than a refresh.
const OLD_MS = 6500;
const GRACE_MS = 4500;
let drawnAt = performance.now();
function durationText(ms) {
  const seconds = Math.round(ms / 1000);
  if (seconds < 90) {
    return `${seconds} s`;
  }
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : minutes < 2880 ? `${Math.round(minutes / 60)} h` : `${Math.round(minutes / 1440)} d`;
}
function showAge() {
  const main = document.querySelector("main[data-live]");
  const heading = main && main.querySelector("h1");
  if (!heading) {
    return;
  }
  const ageMs = Number(main.dataset.ageMs) + performance.now() - drawnAt;
  const isPaused = document.hidden || (typeof whyNot === "function" && whyNot() !== "");
  const oldMs = Math.max(OLD_MS, GRACE_MS + Number(main.dataset.periodMs || 0));
  const isOld = "stale" in main.dataset || (ageMs > oldMs && !isPaused);
  let age = heading.querySelector(".age");
  main.classList.toggle("old", isOld);
  if (!isOld) {
    age?.remove();
    return;
  }
  if (!age) {
    age = heading.appendChild(document.createElement("span"));
    age.className = "age";
  }
  age.textContent = `${durationText(ageMs)} old`;
}
setInterval(showAge, 1000);

// A time shows the reader's local time, UTC and how long ago it is under the pointer.
document.addEventListener("pointerover", (event) => {
  const time = event.target.closest?.("time[datetime]");
  if (time) {
    const at = new Date(time.dateTime);
    const local = at.toLocaleString(undefined, { timeZoneName: "short" });
    const agoMs = Date.now() - at.getTime();
    const distance = agoMs >= 0 ? `${durationText(agoMs)} ago` : `in ${durationText(-agoMs)}`;
    time.title = `${local}\n${at.toISOString().replace("T", " ").replace("Z", " UTC")}\n${distance}`;
  }
});

// On a phone a row is a card: each cell has the words of its column's heading.
function labelCells() {
  for (const table of document.querySelectorAll("table")) {
    const labels = [...table.querySelectorAll("thead th")].map((heading) => heading.textContent.replace(/[↓↑]/, "").trim());
    for (const row of table.tBodies[0]?.rows || []) {
      if (row.cells.length === labels.length && !row.dataset.labelled) {
        row.dataset.labelled = "1";
        [...row.cells].forEach((cell, at) => {
          if (labels[at] && labels[at] !== "links") {
            cell.dataset.label = labels[at];
          }
        });
      }
    }
  }
}

// The values of a plot at the pointer, read from its lines: a path holds what was drawn.
const UNITS = {
  count: (value) => scaled(value, 1000, ["", " k", " M", " G", " T"]),
  "per second": (value) => `${UNITS.count(value)}/s`,
  "bytes per second": (value) => `${scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"])}/s`,
  seconds: (value) => value >= 1 ? `${+value.toPrecision(3)} s` : value >= 1e-3 ? `${+(value * 1e3).toPrecision(3)} ms` : `${Math.round(value * 1e6)} µs`,
};
function scaled(value, base, units) {
  let unit = 0;
  while (Math.abs(value) >= base && unit < units.length - 1) {
    value /= base;
    unit += 1;
  }
  return `${+value.toPrecision(3)}${units[unit]}`;
}
const pointsOf = (path) => [...path.getAttribute("d").matchAll(/[ML]([\d.]+) ([\d.]+)/g)].map((match) => [Number(match[1]), Number(match[2])]);
function hideTip(figure) {
  figure.querySelector(".tip")?.remove();
  figure.querySelector(".at")?.style.removeProperty("visibility");
}
function showTip(figure, event) {
  const svg = figure.querySelector("svg[data-top]");
  const drawn = svg.dataset;
  const box = svg.getBoundingClientRect();
  const pointer = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
  const lines = [...svg.querySelectorAll("path.line")].map((path) => [path, pointsOf(path)]).filter((line) => line[1].length);
  let at = null;
  for (const [, points] of lines) {
    for (const [x] of points) {
      at = at === null || Math.abs(x - pointer) < Math.abs(at - pointer) ? x : at;
    }
  }
  if (at === null) {
    return;
  }
  const tip = figure.querySelector(".tip") || figure.appendChild(document.createElement("div"));
  tip.className = "tip";
  const share = (at - drawn.left) / (drawn.right - drawn.left);
  const time = new Date(Number(drawn.begin) + share * (drawn.end - drawn.begin));
  tip.replaceChildren(`${time.toLocaleTimeString()} · ${time.toISOString().slice(11, 19)} UTC`);
  for (const [path, points] of lines.reverse()) {
    const point = points.find(([x]) => Math.abs(x - at) < 0.2);
    if (point) {
      const value = drawn.max * (drawn.bottom - point[1]) / (drawn.bottom - drawn.top);
      const line = tip.appendChild(document.createElement("div"));
      line.append(path.dataset.name);
      line.appendChild(document.createElement("b")).textContent = UNITS[drawn.unit](drawn.unit === "count" && value < 1000 ? Math.round(value) : value);
    }
  }
  const rule = svg.querySelector(".at");
  rule.setAttribute("x1", at);
  rule.setAttribute("x2", at);
  rule.style.visibility = "visible";
  const x = box.left - figure.getBoundingClientRect().left + at * box.width / svg.viewBox.baseVal.width;
  const isRight = x > box.width / 2;
  tip.style.left = isRight ? "" : `${x + 12}px`;
  tip.style.right = isRight ? `${figure.clientWidth - x + 12}px` : "";
  tip.style.top = `${box.top - figure.getBoundingClientRect().top + 8}px`;
}
document.addEventListener("pointermove", (event) => {
  const figure = event.target.closest?.(".plot");
  document.querySelectorAll(".plot:has(.tip)").forEach((other) => other === figure || hideTip(other));
  if (figure && figure.querySelector("svg[data-top]")) {
    showTip(figure, event);
  }
});

labelCells();
showAge();
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.target.id === "content" || event.detail.target?.id === "content") {
    drawnAt = performance.now();
  }
  labelCells();
  showAge();
});
document.addEventListener("htmx:sseMessage", labelCells);
