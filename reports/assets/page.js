// The page as a whole: what opens when, keys, the theme, printing.
document.documentElement.classList.add("js");

// Resolves when what is drawn later stands in its place.
const filled = new WeakMap();
function fill(details) {
  if (!filled.has(details)) filled.set(details, fillOnce(details));
  return filled.get(details);
}
async function fillOnce(details) {
  await Packets.unfold(details);
  const holder = details.querySelector(".listings");
  const listings = holder && Listings.build(holder).catch((fault) => { holder.textContent = `The listings cannot be unpacked here: ${fault.message}`; });
  return Promise.all([listings, Charts.build(details.dataset.case, details).catch((fault) => console.error(fault))]);
}
for (const details of document.querySelectorAll("details.case, details.timed")) {
  if (details.open) fill(details);
  details.addEventListener("toggle", () => { if (details.open) fill(details); });
}

const ledger = document.querySelector("#conformance details");
ledger?.addEventListener("toggle", () => Packets.unfold(ledger).then(find));

function arrive() {
  if (location.hash.startsWith("#filter?")) { Matrix.restore(); return; }
  const element = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!element) return;
  if (element.matches("table.matrix td")) {
    if (element.getAttribute("aria-expanded") !== "true") Matrix.open(element);
    element.querySelector("a").focus({ preventScroll: true });
    element.scrollIntoView({ block: "center", inline: "center" });
    return;
  }
  for (let up = element.closest("details"); up; up = up.parentElement.closest("details")) up.open = true;
  element.scrollIntoView();
  // Charts above it push it down as they are drawn; whoever has scrolled on since stays where they are.
  const within = element.closest("details.case");
  if (!within) return;
  let moved = false;
  for (const act of ["wheel", "touchmove", "pointerdown", "keydown"]) addEventListener(act, () => { moved = true; }, { once: true, passive: true });
  fill(within).then(() => { if (!moved) element.scrollIntoView(); });
}
window.addEventListener("hashchange", arrive);
if (!location.hash.startsWith("#filter?")) Matrix.apply();
arrive();

let failure = -1;
function step(by) {
  const found = Matrix.failures();
  if (!found.length) return;
  failure = (failure + by + found.length) % found.length;
  found[failure].focus();
  found[failure].scrollIntoView({ block: "center", inline: "center" });
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    const cell = document.querySelector("td[aria-expanded=true]");
    Matrix.close();
    cell?.querySelector("a").focus();
  }
  if (event.target.matches("input, select, textarea")) return;
  if (event.key === "/") { event.preventDefault(); document.getElementById("find").focus(); }
  if (event.key === "n") step(1);
  if (event.key === "p") step(-1);
});

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

// Copies a command. A page from disk has the clipboard in most browsers; where it is refused, the text is selected.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  const code = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(code);
    button.textContent = document.execCommand("copy") ? "Copied" : "Selected: press Ctrl+C";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});

const form = document.getElementById("find-form");
function find() {
  const words = form.value.toLowerCase();
  for (const row of document.querySelectorAll("table.ledger tbody tr")) row.hidden = !row.textContent.toLowerCase().includes(words);
}
form?.addEventListener("input", find);
