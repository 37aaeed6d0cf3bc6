// The order of search results. Titles count as in Sphinx's own scorer; beside them, pages that say what to do come before
// pages that say why, and the page of questions before all, since it holds the words that a new user types.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, , , , score]) => {
    if (page === "questions") return score + 15;
    if (page.startsWith("explanation/decisions/")) return score - 8;
    if (page === "reference/command-line" || page === "reference/catalogue") return score - 2;  // has every word
    const room = { tutorial: 3, "how-to": 4, reference: 2, explanation: 1, results: -3 };
    return score + (room[page.split("/")[0]] || 0);
  },
};
