// Boxes that scroll sideways are reached with the Tab key, so that arrow keys scroll them.
const boxes = ".md-typeset__scrollwrap, .md-typeset pre > code, .md-typeset p:has(> img)";

function makeReachable() {
  for (const box of document.querySelectorAll(boxes)) {
    const isWide = box.scrollWidth > box.clientWidth;
    if (isWide && box.tabIndex !== 0) box.tabIndex = 0;
    if (!isWide) box.removeAttribute("tabindex");
  }
}

// A window becomes narrower. The theme puts tables into boxes, and takes code from the Tab key on phones.
new ResizeObserver(makeReachable).observe(document.body);
new MutationObserver(makeReachable).observe(document.body, { subtree: true, attributeFilter: ["tabindex"] });
