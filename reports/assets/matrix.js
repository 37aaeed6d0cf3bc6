// The matrix: filter and search, arrow keys, and a cell that opens to its packs and shapes.
const Matrix = (() => {
  const table = document.querySelector("table.matrix");
  const form = document.querySelector(".filter");
  const rows = [...table.tBodies[0].rows];
  const find = document.getElementById("find");
  const target = document.getElementById("target");
  const evidence = document.getElementById("evidence");
  const boxes = [...form.querySelectorAll("input[name=state]")];
  const heads = [...table.tHead.rows[0].cells];
  const SYMBOLS = Object.fromEntries([...document.querySelectorAll(".legend dt[class]")].map((dt) =>
    [dt.className.replace("s-", ""), [dt.querySelector(".sym").textContent, dt.textContent.replace(/^\s*\S+\s*/, "").trim()]]));
  const slug = (state) => state.replace(" ", "-");

  function stateOf(cell) { return [...cell.classList].find((c) => c.startsWith("s-")).slice(2); }

  function apply() {
    close();
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const states = new Set(boxes.filter((b) => b.checked).map((b) => b.value));
    const all = states.size === boxes.length;
    const column = heads.findIndex((h) => h.dataset.target === target.value && target.value);
    let shown = 0;
    let previous = "";
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
      row.hidden = !(any && words.every((w) => row.dataset.text.includes(w)));
      if (!row.hidden) {
        shown += 1;
        const first = row.dataset.case !== previous;
        previous = row.dataset.case;
        row.classList.toggle("first", first);
        const label = row.cells[0].firstElementChild;
        if (label.tagName === "SPAN") label.className = first ? "" : "again";
      }
    }
    heads.forEach((h, n) => { if (n > 1) h.hidden = column > 0 && n !== column; });
    document.getElementById("shown").textContent = shown === rows.length ? `${shown} variants` : `${shown} of ${rows.length} variants`;
    remember(words, all ? null : states);
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
    cell.setAttribute("aria-expanded", "true");
    const row = cell.parentElement;
    const name = heads[cell.cellIndex].dataset.target;
    const inside = el("div");
    row.after(el("tr", { class: "opened" }, el("td", { colspan: String(heads.length) }, inside)));
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
    for (const [words, r] of reasons) inside.append(el("p", { class: "words" }, badge(r), ` ${words}`, r.replay ? el("code", { class: "replay" }, ` --ptx-replay=${r.replay}`) : ""));
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

  function move(cell, down, right) {
    const shown = rows.filter((r) => !r.hidden);
    let row = shown.indexOf(cell.parentElement);
    let column = cell.cellIndex;
    do { row += down; column += right; } while (shown[row]?.cells[column]?.hidden);
    if (column < 2) return;
    shown[row]?.cells[column]?.querySelector("a").focus();
  }

  table.addEventListener("click", (event) => {
    const cell = event.target.closest("tbody > tr[data-case] > td");
    if (!cell || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open(cell);
  });
  const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  table.addEventListener("keydown", (event) => {
    const cell = event.target.closest("tbody > tr[data-case] > td");
    if (cell && ARROWS[event.key]) { event.preventDefault(); move(cell, ...ARROWS[event.key]); }
  });
  // Both name columns stay in view while the targets scroll; only here is the first one's width known.
  const widths = new ResizeObserver(() => table.style.setProperty("--case-width", `${heads[0].offsetWidth}px`));
  widths.observe(table);
  for (const cell of table.querySelectorAll("tbody td")) cell.setAttribute("aria-expanded", "false");
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(apply));
  return { open, close, restore, apply, failures: () => [...table.querySelectorAll("tr:not([hidden]) > td.s-fail:not(.dim) > a, tr:not([hidden]) > td.s-error:not(.dim) > a")] };
})();
