// The page is complete without this script, which hides curves, reads values and copies facts.
for (const item of document.querySelectorAll("[data-key]")) {
  const curve = [...document.querySelectorAll(`[data-curve="${CSS.escape(item.dataset.key)}"]`)];
  const made = { type: "button", ariaPressed: "true" };
  const button = Object.assign(document.createElement("button"), made);
  button.append(...item.childNodes);
  item.append(button);
  button.addEventListener("click", () => {
    button.ariaPressed = String(button.ariaPressed !== "true");
    for (const one of curve) one.classList.toggle("hidden");
  });
}
const AFTER_ALL = 2; // right of each axis, where the nearest point of a curve is its last
for (const figures of document.querySelectorAll(".switched .figures")) {
  const plots = [...figures.querySelectorAll("[data-box]")].map((spots) => {
    const svg = spots.closest("svg");
    const [left, top, right, bottom] = spots.dataset.box.split(" ").map(Number);
    const line = document.createElementNS(svg.namespaceURI, "path");
    const values = Object.assign(document.createElement("div"), { className: "values" });
    line.classList.add("crosshair");
    spots.setAttribute("pointer-events", "none"); // their titles would cover the values
    spots.before(line);
    svg.after(values);
    const nearest = (share) => { // of each curve that is shown
      const found = new Map();
      for (const one of spots.querySelectorAll("circle:not(.hidden)")) {
        const at = (one.cx.baseVal.value - left) / (right - left);
        const point = { at, away: Math.abs(at - share), text: one.textContent };
        if (!(found.get(one.dataset.curve)?.away <= point.away)) found.set(one.dataset.curve, point);
      }
      return [...found.values()];
    };
    const show = (share) => {
      const near = nearest(share).filter((one) => one.away < 0.02 || share === AFTER_ALL);
      line.setAttribute("d", `M${left + share * (right - left)} ${top}V${bottom}`);
      values.textContent = near.map((one) => one.text.replaceAll("\n", " · ")).join("\n");
    };
    values.style.minHeight = `${1.5 * nearest(AFTER_ALL).length}em`;
    svg.addEventListener("mouseleave", () => tell(AFTER_ALL));
    for (const kind of ["pointerdown", "pointermove"]) svg.addEventListener(kind, (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      const points = nearest((x - left) / (right - left));
      tell(points.sort((one, other) => one.away - other.away)[0]?.at ?? AFTER_ALL);
    });
    return show;
  });
  const tell = (share) => {
    figures.classList.toggle("read", share !== AFTER_ALL);
    for (const show of plots) show(share);
  };
  tell(AFTER_ALL);
}
for (const button of document.querySelectorAll("button.copy")) {
  const rows = [...button.parentNode.querySelectorAll("tr")].map((row) => [...row.cells]);
  const text = rows.map((row) => row.map((one) => one.textContent).join("\t")).join("\n");
  button.hidden = false;
  const copied = () => { button.textContent = "copied"; };
  button.addEventListener("click", () => navigator.clipboard.writeText(text).then(copied));
}
