// The search of the page "Tables and marts" finds a column if each typed word is in its row, or in
// the name or description of its table. Without JavaScript, the page shows everything.
document.getElementById("tables-and-marts")?.insertAdjacentHTML("afterend", `<p class="finder">
  <label for="finder">Find tables and columns</label>
  <input type="search" id="finder" autocomplete="off"> <output for="finder" aria-live="polite"></output></p>`);
const field = document.getElementById("finder");
field?.addEventListener("input", filter);
field?.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  field.value = "";
  filter();
});

function filter() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  // A table has a heading, a description, columns and queries. The rest is between tables.
  const tables = [], rest = [];
  let part = rest;
  for (const element of document.querySelectorAll(".finder ~ *")) {
    if (element.matches("h2")) part = rest;
    if (element.matches("h3")) tables.push(part = []);
    part.push(element);
  }
  for (const element of rest) element.hidden = words.length > 0;
  const count = tables.filter((table) => find(table, words)).length;
  const answer = count === 1 ? "1 table found" : `${count} tables found`;
  field.nextElementSibling.value = words.length > 0 ? answer : "";
}

function find([heading, description, ...others], words) {
  const entries = document.querySelectorAll(`.md-nav__item:has(> [href="#${heading.id}"])`);
  const rows = others.flatMap((element) => [...element.querySelectorAll("tbody tr")]);
  for (const row of rows) {
    const text = [heading, description, row].map((one) => one.textContent).join(" ").toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
  const isFound = rows.some((row) => !row.hidden);
  for (const element of [heading, description, ...others, ...entries]) element.hidden = !isFound;
  return isFound;
}
