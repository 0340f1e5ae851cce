// The page is complete without this script, which hides curves, reads values and copies facts.
for (const item of document.querySelectorAll("[data-key]")) {
  const curve = [...document.querySelectorAll(`[data-curve="${CSS.escape(item.dataset.key)}"]`)];
  const button = document.createElement("button");
  button.type = "button";
  button.ariaPressed = "true";
  button.append(...item.childNodes);
  item.append(button);
  button.addEventListener("click", () => {
    button.ariaPressed = String(button.ariaPressed !== "true");
    for (const one of curve) one.classList.toggle("hidden");
  });
}
for (const figures of document.querySelectorAll(".switched .figures")) {
  const plots = [...figures.querySelectorAll("[data-box]")].map((spots) => {
    const svg = spots.closest("svg");
    const [left, top, right, bottom] = spots.dataset.box.split(" ").map(Number);
    const curves = [...spots.children].map((one) => one.dataset.curve);
    const line = document.createElementNS(svg.namespaceURI, "path");
    const values = document.createElement("div");
    line.classList.add("crosshair");
    values.classList.add("values");
    spots.setAttribute("pointer-events", "none"); // their titles would cover the values
    spots.before(line);
    svg.after(values);
    values.style.minHeight = `${1.5 * Math.min(new Set(curves).size, 4)}em`;
    const nearest = (share) => { // of each curve that is shown
      const found = new Map();
      for (const one of spots.querySelectorAll("circle:not(.hidden)")) {
        const at = (one.cx.baseVal.value - left) / (right - left);
        const point = { at, away: Math.abs(at - share), text: one.textContent };
        if (!(found.get(one.dataset.curve)?.away <= point.away)) found.set(one.dataset.curve, point);
      }
      return [...found.values()].sort((one, other) => one.away - other.away);
    };
    const show = (share) => {
      const x = left + share * (right - left);
      const near = nearest(share).filter((one) => one.away < 0.02);
      line.setAttribute("d", `M${x} ${top}V${bottom}`);
      values.textContent = near.map((one) => one.text.replaceAll("\n", " · ")).join("\n");
    };
    const read = (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      const [snapped] = nearest((x - left) / (right - left));
      for (const plot of plots) plot(snapped ? snapped.at : 0);
      figures.classList.toggle("read", Boolean(snapped));
    };
    for (const kind of ["pointerdown", "pointermove"]) svg.addEventListener(kind, read);
    svg.addEventListener("mouseleave", () => figures.classList.remove("read"));
    return show;
  });
}
for (const button of document.querySelectorAll("button.copy")) {
  const rows = [...button.parentNode.querySelectorAll("tr")].map((row) => [...row.cells]);
  const text = rows.map((row) => row.map((one) => one.textContent).join("\t")).join("\n");
  button.hidden = false;
  button.addEventListener("click", () => navigator.clipboard.writeText(text));
}
