// node search.js SITE QUERY...: the results of the built site's own search, as JSON: for each query, pages from the best.
const fs = require("fs");
const vm = require("vm");
const [site, ...queries] = process.argv.slice(2);
const page = { childNodes: [], firstChild: null, replaceChildren() {} };
const context = vm.createContext({
  URLSearchParams,
  SPHINX_HIGHLIGHT_ENABLED: false,
  document: { getElementById: () => page, documentElement: { dataset: {} }, readyState: "loading", addEventListener() {} },
  location: { search: "" },
  addEventListener() {},
  _ready() {},
});
context.window = context;
for (const file of ["_static/language_data.js", "_static/searchtools.js"]) {
  vm.runInContext(fs.readFileSync(`${site}/${file}`, "utf8"), context, file);
}
vm.runInContext("var Site = Search; Site.setIndex = (index) => { Site._index = index; };", context);
vm.runInContext(fs.readFileSync(`${site}/searchindex.js`, "utf8"), context);
const found = queries.map((query) => {
  context.query = query;
  const results = vm.runInContext("Site._performSearch(...Site._parseQuery(query))", context);
  return [...new Set(results.reverse().map((result) => result[0]))];
});
console.log(JSON.stringify(found));
