// The theme that the reader has chosen on this browser, set before the page is drawn; without one the system's.
"use strict";
try {
  document.documentElement.dataset.theme = localStorage.getItem("oncelog-theme") || "";
} catch {
  // Storage is switched off: the system's theme holds.
}
