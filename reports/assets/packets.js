// What the page keeps packed: one packet a case, inflated when somebody looks at it. See reports/packing.py.
const Packets = (() => {
  const opened = new Map();
  const STRINGS = ["variant", "target", "backend", "shape", "context", "inputSet", "state", "evidence", "words", "command"];
  const NUMBERS = ["pack", "alignment", "numWarps", "fusion", "total", "different", "worst", "listing"];

  async function inflate(base64) {
    const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).text();
  }

  function resultOf(row, strings) {
    const result = {};
    STRINGS.forEach((name, n) => { result[name] = strings[row[n]]; });
    NUMBERS.forEach((name, n) => { result[name] = row[STRINGS.length + n]; });
    return result;
  }

  function columns(packed, lines, language) {
    const [texts, numbers, marks] = packed;
    return texts.map((t, n) => ({ text: lines[t], language, number: numbers[n], mark: ["", "ours", "triton"][marks[n]] }));
  }

  async function load(name) {
    const element = [...document.querySelectorAll("script.packet")].find((s) => s.dataset.case === name);
    const raw = JSON.parse(await inflate(element.textContent.trim()));
    const listings = raw.listings.map(([variant, target, shape, context, pack, fusion, ptx, sass, resources]) => ({
      variant: raw.strings[variant], target: raw.strings[target], shape: raw.strings[shape], context: raw.strings[context], pack, fusion,
      ptx: columns(ptx, raw.lines, "ptx"), sass: columns(sass, raw.lines, "sass"),
      resources: resources.map(([n, v]) => [raw.strings[n], v]),
    }));
    return { results: raw.results.map((row) => resultOf(row, raw.strings)), listings, charts: raw.charts };
  }

  // The promise of a case's packet; a browser too old for DecompressionStream gets a rejection that says so.
  function get(name) {
    if (!opened.has(name)) opened.set(name, load(name));
    return opened.get(name);
  }

  // Puts HTML that was packed in its place. Its texts were escaped when it was made; scripts in it would not run.
  async function unfold(within) {
    const holder = within.querySelector(".folded");
    if (!holder) return;
    const made = document.createElement("template");
    made.innerHTML = await inflate(holder.querySelector("script").textContent.trim());
    holder.replaceWith(made.content);
  }

  // Runs a packed script once; the page's policy has the hash of its text.
  const ran = new Map();
  function run(id) {
    if (!ran.has(id)) ran.set(id, start(document.getElementById(id)));
    return ran.get(id);
  }
  async function start(element) {
    if (!element) return;
    const script = document.createElement("script");
    script.textContent = await inflate(element.textContent.trim());
    document.head.append(script);
  }
  return { get, unfold, run };
})();

// An element with text; never HTML.
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
