// All rows are there without this script, which sorts and filters them.
const table = document.querySelector("table.runs");
const body = table.tBodies[0];
const rows = [...body.rows];
const heads = [...table.tHead.rows[0].cells];
const shown = document.querySelector("#shown");
const search = document.querySelector("#filter");
const keys = new Map(rows.map((row) => [row, [...row.cells].map(key)]));

function key(cell) { // a number sorts before a text, and a cell without a value is last
  const text = cell.dataset.value ?? cell.textContent.trim();
  const number = text === "" ? NaN : Number(text);
  return Number.isNaN(number) ? text : number;
}

function compare(one, other) {
  const kinds = [one, other].map((value) => (value === "–" || value === "" ? 2 : Number(typeof value === "string")));
  if (kinds[0] !== kinds[1]) return { last: kinds.includes(2), order: kinds[0] - kinds[1] };
  if (typeof one === "number") return { last: false, order: one - other };
  return { last: false, order: one.localeCompare(other, undefined, { numeric: true }) };
}

for (const [column, head] of heads.entries()) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const sign = head.ariaSort === "ascending" ? -1 : 1;
    for (const one of heads) one.ariaSort = one === head ? (sign > 0 ? "ascending" : "descending") : null;
    body.append(...rows.sort((one, other) => {
      const { last, order } = compare(keys.get(one)[column], keys.get(other)[column]);
      return last ? order : sign * order;
    }));
  });
}

const texts = new Map(rows.map((row) => [row, row.innerText.toLowerCase()]));
search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/);
  for (const row of rows) row.hidden = !words.every((word) => texts.get(row).includes(word));
  shown.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} shown`;
});
search.closest("p").hidden = false;
