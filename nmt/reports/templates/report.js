"use strict";
// The page's own theme: that of the system until the button is pressed.
{
  const button = document.getElementById("theme"), root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  const show = () => button.setAttribute("aria-pressed", isDark());
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; show(); });
  system.addEventListener("change", show);
  button.hidden = false;
  show();
}
// Tables that are sorted by a click on a header: numbers by value, the largest first, and other cells by text.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const text = (row, column) => row.cells[column]?.textContent.trim() ?? "";
  const number = cell => parseFloat(cell.replace(/^[^\d+−-]*/, "").replace("−", "-").replaceAll(",", ""));
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    if (!cell.textContent.trim()) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => {
      const rows = [...body.rows], numeric = column > 0;
      const first = numeric ? "descending" : "ascending", second = numeric ? "ascending" : "descending";
      const order = cell.getAttribute("aria-sort") === first ? second : first;
      const key = row => numeric ? number(text(row, column)) : text(row, column);
      const compare = numeric ? (a, b) => a - b : (a, b) => a.localeCompare(b, undefined, {numeric: true});
      const missing = value => numeric && Number.isNaN(value);
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", order);
      rows.sort((one, two) => {
        const a = key(one), b = key(two);
        if (missing(a) || missing(b)) return missing(a) - missing(b);
        return order === "ascending" ? compare(a, b) : compare(b, a);
      });
      body.append(...rows);
    });
  });
}
// Sentences: those of a list, in its order, with a text, with the marks that are chosen.
for (const part of document.querySelectorAll(".segments")) {
  const [list, words, marks] = [".lists", ".words", ".marks"].map(name => part.querySelector(name));
  const articles = [...part.querySelectorAll("article")];
  const byLine = new Map(articles.map(article => [article.dataset.line, article]));
  const show = () => {
    const text = words.value.toLocaleLowerCase(), lines = list.selectedOptions[0].dataset.lines;
    const chosen = lines ? lines.split(" ").map(line => byLine.get(line)) : articles;
    for (const article of articles) article.hidden = true;
    for (const article of chosen) article.hidden = !article.textContent.toLocaleLowerCase().includes(text);
    part.append(...chosen);
    const number = articles.filter(article => !article.hidden).length;
    part.querySelector("[role=status]").textContent = `${number} of ${articles.length} sentences shown`;
  };
  list.addEventListener("change", show);
  words.addEventListener("input", show);
  marks?.addEventListener("change", () => { part.dataset.marks = marks.value; });
  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (!part.contains(target) || !target.hidden) return;
    list.value = words.value = "";
    show();
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  part.querySelector(".controls").hidden = false;
  show();
  reveal();
}
// Buttons that copy the text before them; without a clipboard they select it.
for (const button of document.querySelectorAll("button.copy")) {
  const text = button.previousElementSibling;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(text);
      button.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  button.hidden = false;
}
// The page of attention is as high as its content, so that nothing scrolls inside the page.
for (const frame of document.querySelectorAll("iframe.attention")) {
  const fit = () => { frame.style.height = `${frame.contentDocument.documentElement.offsetHeight + 2}px`; };
  const watch = () => new ResizeObserver(fit).observe(frame.contentDocument.body);
  frame.addEventListener("load", watch);
  if (frame.contentDocument.readyState === "complete" && frame.contentDocument.body.children.length) watch();
}
