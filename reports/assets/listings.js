// PTX and SASS side by side, our asm marked, a line on one side bringing out what it became on the other; and the same
// text of two variants or targets compared.
const Listings = (() => {
  function line(entry, extra = "") {
    const row = el("div", { class: `${entry.mark} ${extra}`.trim() }, el("span", { class: "ln" }, entry.number ? String(entry.number) : ""));
    if (entry.number) row.dataset.n = entry.number;
    for (const [name, text] of Colours.runs(entry.text, entry.language)) {
      row.append(name ? el("span", { class: `x-${name}` }, text) : text);
    }
    return row;
  }

  // Registers are allocated anew for every target and variant; a line that differs only in them is the same line.
  const shape = (entry) => entry.text.replace(/%\w+?\d+\b/g, "%").replace(/\bU?[RP]\d+\b/g, "R").trim();

  // Longest common subsequence of two short lists of lines; pairs of indices, -1 where a side has nothing.
  function align(a, b) {
    const keysA = a.map(shape), keysB = b.map(shape);
    const best = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
    for (let i = a.length - 1; i >= 0; i -= 1) {
      for (let j = b.length - 1; j >= 0; j -= 1) {
        best[i][j] = keysA[i] === keysB[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
      }
    }
    const pairs = [];
    let i = 0, j = 0;
    while (i < a.length || j < b.length) {
      if (i < a.length && j < b.length && keysA[i] === keysB[j]) pairs.push([i++, j++]);
      else if (j >= b.length || (i < a.length && best[i + 1][j] >= best[i][j + 1])) pairs.push([i++, -1]);
      else pairs.push([-1, j++]);
    }
    return pairs;
  }

  function pane(label, children) {
    return el("figure", { class: "code" }, el("figcaption", {}, label), el("pre", { class: "listing", tabindex: "0", "aria-label": label }, ...children));
  }

  const title = (l) => `${l.variant}, ${l.target}, pack ${l.pack}${l.shape ? `, ${l.shape}` : ""}${l.context === "straight" ? "" : `, ${l.context}`}${l.fusion ? ", fusion on" : ""}`;

  function sass(chosen, label, keep) {
    if (!chosen.sass.length) return pane("SASS: not taken for this kernel; each variant is disassembled once a target", []);
    return pane(label, keep(chosen.sass).map((x) => line(x)));
  }

  function show(box, listings, chosen, other, kind, onlyOurs) {
    box.replaceChildren();
    const keep = (lines) => (onlyOurs ? lines.filter((x) => x.mark === "ours") : lines);
    if (!other) {
      const unknown = chosen.sass.length && !chosen.sass.some((x) => x.number) ? " (which PTX line each came from is not recorded)" : "";
      const resources = chosen.resources.filter(([, v]) => v).map(([n, v]) => `${n.replace("_", " ")} ${v}`).join(", ");
      box.append(pane(`PTX: ${title(chosen)}`, keep(chosen.ptx).map((x) => line(x))), sass(chosen, `SASS${resources ? `: ${resources}` : ""}${unknown}`, keep));
      return;
    }
    const a = keep(chosen[kind]), b = keep(other[kind]);
    const left = [], right = [];
    for (const [i, j] of align(a, b)) {
      left.push(i < 0 ? el("div", { class: "hole" }) : line(a[i], j < 0 ? "gone" : ""));
      right.push(j < 0 ? el("div", { class: "hole" }) : line(b[j], i < 0 ? "came" : ""));
    }
    const differing = left.filter((x) => x.matches(".hole, .gone")).length;
    box.append(pane(`${kind.toUpperCase()}: ${title(chosen)}`, left), pane(`${title(other)}: ${differing ? `${differing} lines differ` : "no difference"} (register numbers aside)`, right));
  }

  function select(label, options, onchange) {
    const control = el("select", { onchange }, ...options.map(([value, words]) => el("option", { value }, words)));
    return [el("label", {}, `${label} `, control), control];
  }

  async function build(holder) {
    if (holder.dataset.built) return;
    holder.dataset.built = "yes";
    const { listings } = await Packets.get(holder.dataset.case);
    if (!listings.length) return;
    const box = el("div", { class: "beside" });
    const names = listings.map((l, n) => [String(n), title(l)]);
    const update = () => show(box, listings, listings[first.value], listings[second.value], kind.value, ours.checked);
    const [firstLabel, first] = select("Kernel", names, update);
    const [secondLabel, second] = select("beside", [["", "its own SASS"], ...names], update);
    const [kindLabel, kind] = select("compare", [["ptx", "PTX"], ["sass", "SASS"]], update);
    const ours = el("input", { type: "checkbox", onchange: update });
    second.addEventListener("change", () => { kindLabel.hidden = !second.value; });
    kindLabel.hidden = true;
    const left = holder.dataset.leftOut ? el("span", { class: "detail" }, holder.dataset.leftOut) : "";
    holder.append(el("h4", {}, "PTX and SASS"), el("div", { class: "controls" }, firstLabel, secondLabel, kindLabel, el("label", {}, ours, " only our asm"), left), box);
    box.addEventListener("pointerover", bringOut);
    box.addEventListener("focusin", bringOut);
    update();
    box.querySelector(".ours")?.parentElement.scrollTo({ top: box.querySelector(".ours").offsetTop - 120 });
  }

  function bringOut(event) {
    const row = event.target.closest(".listing > div");
    if (!row || row.classList.contains("same")) return;
    const box = row.closest(".beside");
    for (const old of box.querySelectorAll(".same")) old.classList.remove("same");
    if (row.dataset.n) for (const other of box.querySelectorAll(`.listing > div[data-n="${row.dataset.n}"]`)) other.classList.add("same");
  }
  return { build };
})();
