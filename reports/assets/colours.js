// Colours a line of PTX or SASS as runs of a class and a text, by the expressions of reports/highlight.py and as its
// `runs` does.
const Colours = (() => {
  const languages = JSON.parse(document.getElementById("colours").textContent);
  for (const states of Object.values(languages)) {
    for (const [name, [pattern, classes, after]] of Object.entries(states)) {
      states[name] = { expression: new RegExp(pattern, "y"), classes, after };
    }
  }

  function* tokens(line, states) {
    let state = states[""], position = 0;
    while (position < line.length) {
      state.expression.lastIndex = position;
      const match = state.expression.exec(line);
      if (!match) break;
      position = state.expression.lastIndex;
      const group = match.findLastIndex((text) => text !== undefined);
      const names = state.classes[group];
      if (names.length === 1) yield [names[0], match[0]];
      else for (const [n, name] of names.entries()) if (match[group - names.length + 1 + n]) yield [name, match[group - names.length + 1 + n]];
      if (group in state.after) state = states[state.after[group]];
    }
    if (position < line.length) yield ["", line.slice(position)];
  }

  // Neighbours of one class are joined, and so is space with what is before it.
  function runs(line, language) {
    const found = [];
    for (const [name, text] of tokens(line, languages[language])) {
      const last = found[found.length - 1];
      if (last && (last[0] === name || !text.trim())) last[1] += text;
      else found.push([name, text]);
    }
    return found;
  }
  return { runs };
})();
