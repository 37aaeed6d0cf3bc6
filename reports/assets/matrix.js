// The matrix: filter and search, families that fold, one tab stop with arrow keys inside, and a cell that opens to its
// packs and shapes.
const Matrix = (() => {
  const table = document.querySelector("table.matrix");
  const holder = table.parentElement;
  const form = document.querySelector(".filter");
  const rows = [...table.querySelectorAll("tbody > tr[data-case]")];
  const headings = [...table.querySelectorAll("tr.heading")];
  const unfold = document.getElementById("unfold");
  const find = document.getElementById("find");
  const target = document.getElementById("target");
  const evidence = document.getElementById("evidence");
  const boxes = [...form.querySelectorAll("input[name=state]")];
  const heads = [...table.tHead.rows[0].cells];
  const SYMBOLS = Object.fromEntries([...document.querySelectorAll(".legend dt[class]")].map((dt) =>
    [dt.className.replace("s-", ""), [dt.querySelector(".sym").textContent, dt.textContent.replace(/^\s*\S+\s*/, "").trim()]]));
  const slug = (state) => state.replace(" ", "-");

  // Families in which nothing is wrong are folded, unless somebody searches.
  const passing = () => new Set(headings.map((h) => h.parentElement).filter((b) => b.dataset.passes));
  let folded = passing();
  let searching = false;

  function stateOf(cell) { return [...cell.classList].find((c) => c.startsWith("s-")).slice(2); }

  function apply() {
    close();
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const states = new Set(boxes.filter((b) => b.checked).map((b) => b.value));
    const all = states.size === boxes.length;
    const column = heads.findIndex((h) => h.dataset.target === target.value && target.value);
    const narrowed = words.length > 0 || !all || evidence.value !== "";
    if (narrowed !== searching) folded = narrowed ? new Set() : passing();
    searching = narrowed;
    let shown = 0;
    let hidden = 0;
    let previous = "";
    const matching = new Set();
    for (const row of rows) {
      let any = false;
      [...row.cells].forEach((cell, n) => {
        if (n < 2) return;
        const state = stateOf(cell);
        const wanted = (all || states.has(state))
          && (!evidence.value || cell.dataset.evidence.split(" ").includes(evidence.value));
        cell.classList.toggle("dim", !wanted);
        cell.hidden = column > 0 && n !== column;
        any ||= wanted && !cell.hidden;
      });
      const matches = any && words.every((w) => row.dataset.text.includes(w));
      const away = folded.has(row.parentElement);
      row.hidden = !matches || away;
      if (matches) {
        shown += 1;
        hidden += away;
        matching.add(row.parentElement);
      }
      if (!row.hidden) {
        const first = row.dataset.case !== previous;
        previous = row.dataset.case;
        row.classList.toggle("first", first);
        const label = row.cells[0].firstElementChild;
        if (label.tagName === "SPAN") label.className = first ? "" : "again";
      }
    }
    heads.forEach((h, n) => { if (n > 1) h.hidden = column > 0 && n !== column; });
    for (const heading of headings) {
      heading.hidden = !matching.has(heading.parentElement);
      heading.querySelector("button").setAttribute("aria-expanded", String(!folded.has(heading.parentElement)));
      [...heading.cells].forEach((cell, n) => { if (n) cell.hidden = column > 0 && n + 1 !== column; });
    }
    unfold?.setAttribute("aria-pressed", String(!folded.size));
    const count = shown === rows.length ? `${shown} variants` : `${shown} of ${rows.length} variants`;
    document.getElementById("shown").textContent = count + (hidden ? `, ${hidden} in folded families` : "");
    remember(words, all ? null : states);
    stop();
  }

  function fold(body, away) {
    if (away) folded.add(body); else folded.delete(body);
    apply();
  }

  function remember(words, states) {
    const kept = new URLSearchParams();
    if (words.length) kept.set("find", words.join(" "));
    if (states) kept.set("state", [...states].join(","));
    if (target.value) kept.set("target", target.value);
    if (evidence.value) kept.set("evidence", evidence.value);
    const hash = kept.size ? `#filter?${kept}` : location.hash.startsWith("#filter?") ? "#matrix" : location.hash;
    if (hash !== location.hash) history.replaceState(null, "", hash || "#");
  }

  function restore() {
    const kept = new URLSearchParams(location.hash.slice("#filter?".length));
    find.value = kept.get("find") ?? "";
    target.value = kept.get("target") ?? "";
    evidence.value = kept.get("evidence") ?? "";
    const states = kept.get("state")?.split(",");
    boxes.forEach((b) => { b.checked = !states || states.includes(b.value); });
    apply();
    document.getElementById("matrix").scrollIntoView();
  }

  function close() {
    for (const row of table.querySelectorAll("tr.opened")) row.remove();
    for (const cell of table.querySelectorAll("td[aria-expanded=true]")) cell.setAttribute("aria-expanded", "false");
  }

  async function open(cell) {
    const already = cell.getAttribute("aria-expanded") === "true";
    close();
    if (already) return;
    const row = cell.parentElement;
    if (folded.has(row.parentElement)) fold(row.parentElement, false);
    cell.setAttribute("aria-expanded", "true");
    const name = heads[cell.cellIndex].dataset.target;
    const inside = el("div");
    row.after(el("tr", { class: "opened" }, el("td", { colspan: String(heads.filter((h) => !h.hidden).length) }, inside)));
    history.replaceState(null, "", `#${cell.id}`);
    try {
      const { results } = await Packets.get(row.dataset.case);
      const mine = results.filter((r) => r.variant === row.dataset.variant && r.target === name);
      fill(inside, row.dataset, name, mine);
    } catch (fault) {
      inside.append(el("p", {}, `The details cannot be unpacked here (${fault.message}); the case's section has the summary.`));
    }
  }

  function fill(inside, { case: name, variant }, on, results) {
    const link = [...document.querySelectorAll("details.case")].find((d) => d.dataset.case === name);
    inside.append(el("button", { type: "button", class: "close", onclick: () => { close(); } }, "Close"),
      el("h4", {}, `${name}::${variant} on ${on} `, el("a", { href: `#${link.id}` }, "the case")));
    if (!results.length) inside.append(el("p", {}, "No record: this run has nothing on it."));
    const tables = el("div", { class: "tables" });
    for (const backend of new Set(results.map((r) => r.backend))) tables.append(grid(backend, results.filter((r) => r.backend === backend)));
    inside.append(tables);
    const reasons = new Map(results.filter((r) => r.words).map((r) => [r.words, r]));
    for (const [words, r] of reasons) {
      inside.append(el("p", { class: "words" }, badge(r), ` ${words.includes("]: ") ? words.slice(words.indexOf("]: ") + 3) : words}`));
      if (r.command) inside.append(el("p", { class: "repeat" }, el("code", {}, r.command), el("button", { type: "button", class: "copy" }, "Copy")));
    }
  }

  function badge(r) {
    const [symbol, word] = SYMBOLS[slug(r.state)];
    return el("span", { class: `state s-${slug(r.state)}` }, el("span", { class: "sym" }, symbol), ` ${word}`);
  }

  // One table a backend: packs and contexts down, shapes across, in each field what ran there.
  function grid(backend, results) {
    const down = (r) => [`pack ${r.pack}`, r.context === "straight" ? "" : r.context, r.fusion ? "fusion on" : ""].filter(Boolean).join(", ");
    const across = (r) => r.shape || "any shape";
    const order = (shape) => (shape.match(/\d+/g) ?? []).reduce((n, d) => n * Number(d), 1);
    const rows = [...new Set([...results].sort((a, b) => a.context.localeCompare(b.context) * -1 || a.fusion - b.fusion || a.pack - b.pack).map(down))];
    const shapes = [...new Set(results.map(across))].sort((a, b) => order(a) - order(b));
    const kinds = [...new Set(results.filter((r) => r.state === "pass").map((r) => r.evidence))];
    const body = rows.map((row) => el("tr", {}, el("th", { scope: "row" }, row), ...shapes.map((shape) =>
      el("td", {}, ...results.filter((r) => down(r) === row && across(r) === shape).map((r) => entry(r, kinds.length > 1))))));
    return el("table", { class: "detail" }, el("caption", {}, `${backend}${kinds.length === 1 && kinds[0] !== "none" ? `, evidence: ${kinds[0]}` : ""}`),
      el("thead", {}, el("tr", {}, el("th", {}, ""), ...shapes.map((s) => el("th", { scope: "col" }, s)))), el("tbody", {}, ...body));
  }

  function entry(r, withEvidence) {
    const [symbol, word] = SYMBOLS[slug(r.state)];
    const parts = [
      r.state === "pass" ? "" : word, r.inputSet === "none" ? "" : r.inputSet,
      r.different ? `${r.different.toLocaleString("en")} of ${r.total.toLocaleString("en")} differ` : "",
      r.worst > 0 ? `≤ ${r.worst} ulp` : "", r.alignment !== 16 ? `${r.alignment} B aligned` : "",
      r.numWarps !== 4 ? `${r.numWarps} warps` : "", withEvidence && r.state === "pass" ? r.evidence : "",
    ];
    return el("div", { class: `s-${slug(r.state)}` }, el("span", { class: "sym" }, symbol), ` ${parts.filter(Boolean).join(", ")}`);
  }

  // One tab stop: of all links and buttons of the table one can be reached by Tab, and arrow keys move from there.
  const OWN = "tbody > tr:not(.opened) :is(a, button)";
  let current = null;
  let wanted = 2; // the column that vertical moves keep to, across headings
  const reachable = (e) => e && !e.closest("[hidden]") && e.checkVisibility();

  function stop(element = current) {
    const next = reachable(element) ? element : [...table.querySelectorAll(OWN)].find(reachable);
    if (current) current.tabIndex = -1;
    if (next) next.tabIndex = 0;
    current = next;
  }

  const place = (row, column) => (row.classList.contains("heading") ? row.querySelector("button") : row.cells[column]?.querySelector("a"));

  function go(element) {
    if (!reachable(element)) return false;
    element.focus();
    return true;
  }

  function move(key, from, whole) {
    const shown = [...table.querySelectorAll("tbody > tr:not(.opened)")].filter((r) => !r.hidden);
    const row = shown.indexOf(from.closest("tr"));
    const columns = heads.map((_, n) => n);
    const first = (order) => order.some((n) => go(place(shown[row], n)));
    if (key === "ArrowDown" || key === "ArrowUp") {
      const next = key === "ArrowDown" ? shown.slice(row + 1) : shown.slice(0, row).reverse();
      return next.some((r) => go(place(r, wanted)));
    }
    if (whole && (key === "Home" || key === "End")) return go(place(shown.at(key === "Home" ? 0 : -1), wanted));
    if (shown[row].classList.contains("heading")) {
      if (key === "ArrowLeft" || key === "ArrowRight") fold(shown[row].parentElement, key === "ArrowLeft");
      return true;
    }
    const at = from.closest("th, td").cellIndex;
    const order = { ArrowLeft: columns.slice(0, at).reverse(), ArrowRight: columns.slice(at + 1), Home: columns, End: columns.slice().reverse() }[key];
    return first(order);
  }

  table.addEventListener("click", (event) => {
    const cell = event.target.closest("tbody > tr[data-case] > td");
    if (!cell || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open(cell);
  });
  const KEYS = new Set(["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End"]);
  table.addEventListener("keydown", (event) => {
    if (!KEYS.has(event.key) || event.altKey || event.metaKey || !event.target.matches(OWN)) return;
    event.preventDefault();
    move(event.key, event.target, event.ctrlKey);
  });
  table.addEventListener("focusin", (event) => {
    if (!event.target.matches(OWN)) return;
    stop(event.target);
    const cell = event.target.closest("td, th");
    if (!cell.parentElement.classList.contains("heading")) wanted = cell.cellIndex;
  });
  for (const heading of headings) {
    heading.querySelector("button").addEventListener("click", () => fold(heading.parentElement, !folded.has(heading.parentElement)));
  }
  unfold?.addEventListener("click", () => { folded = folded.size ? new Set() : passing(); apply(); });
  // Paper has no buttons: everything is printed.
  let before = null;
  addEventListener("beforeprint", () => { before = folded; folded = new Set(); apply(); });
  addEventListener("afterprint", () => { folded = before ?? folded; apply(); });
  // Both name columns stay in view while the targets scroll, and an opened cell takes the width that is seen; only here
  // are these widths known. A table that fits scrolls with the page, and the targets stay below the page's own header.
  const widths = new ResizeObserver(() => {
    table.style.setProperty("--case-width", `${heads[0].offsetWidth}px`);
    holder.style.setProperty("--view", `${holder.clientWidth}px`);
    holder.style.setProperty("--top", `${document.querySelector(".top").offsetHeight}px`);
    holder.classList.toggle("fits", table.offsetWidth <= holder.clientWidth);
  });
  widths.observe(table);
  widths.observe(holder);
  // What scrolls sideways cannot hold an element to the window; there the header is moved as the page scrolls.
  function follow() {
    const above = document.querySelector(".top").offsetHeight - holder.getBoundingClientRect().top;
    const most = table.offsetHeight - table.tHead.offsetHeight;
    table.style.setProperty("--shift", `${Math.max(0, Math.min(above, most))}px`);
  }
  addEventListener("scroll", follow, { passive: true });
  addEventListener("resize", follow);
  // With arrow keys inside, this table is what the accessibility interface calls a grid, and needs no stop of its own.
  table.setAttribute("role", "grid");
  table.setAttribute("aria-labelledby", "matrix-title");
  for (const name of ["tabindex", "role", "aria-labelledby"]) holder.removeAttribute(name);
  for (const element of table.querySelectorAll(OWN)) element.tabIndex = -1;
  for (const cell of table.querySelectorAll("tr[data-case] > td")) cell.setAttribute("aria-expanded", "false");
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(apply));
  return { open, close, restore, apply, failures: () => [...table.querySelectorAll("tr:not([hidden]) > td.s-fail:not(.dim) > a, tr:not([hidden]) > td.s-error:not(.dim) > a")] };
})();
