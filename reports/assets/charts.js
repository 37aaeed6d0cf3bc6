// Vega-Lite charts, drawn when they come into view. The specifications are shared; a packet has the rows.
const Charts = (() => {
  const specifications = JSON.parse(document.getElementById("specifications").textContent);

  async function draw(element, chart) {
    if (element.dataset.drawn || !specifications[chart.kind] || !chart.rows.length) return;
    element.dataset.drawn = "yes";
    await Packets.run("library");
    if (!window.vegaEmbed) return;
    element.hidden = false;
    if (element.dataset.title) element.append(el("h4", {}, element.dataset.title));
    if (element.dataset.note) element.append(el("p", { class: "detail" }, element.dataset.note));
    const label = element.dataset.label ?? element.dataset.title ?? "chart";
    const view = el("div", { class: "view" });
    element.append(view);
    const spec = { ...specifications[chart.kind], description: label, datasets: { rows: chart.rows } };
    // `ast` has vega interpret its expressions: the page's policy forbids making functions from text.
    await window.vegaEmbed(view, spec, { ast: true, actions: false, renderer: "svg", tooltip: { theme: "none" }, mode: "vega-lite" });
    view.setAttribute("role", "img"); // one picture with a name, not a hundred marks to step through
    element.closest("figure.histogram")?.querySelector(".numbers")?.classList.add("visually-hidden");
  }

  async function build(name, within) {
    const { charts } = await Packets.get(name);
    for (const [id, chart] of Object.entries(charts)) {
      const element = document.getElementById(id);
      if (element && within.contains(element)) await draw(element, chart);
    }
  }
  return { build };
})();
