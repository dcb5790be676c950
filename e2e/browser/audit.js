// Measures a page as it is shown now. Each function returns what is wrong, as texts.
(() => {
  const describe = (element) => {
    const text = (element.textContent || "").trim().replace(/\s+/g, " ").slice(0, 60);
    return element.tagName.toLowerCase() + (element.id ? "#" + element.id : "") + " \"" + text + "\"";
  };
  const shown = (element) => element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0;

  // WCAG 2.2, 1.4.3: text has a contrast of 4.5 to what is behind it. Colours are sRGB, 0 to 255, with alpha 0 to 1.
  const channel = (value) => {
    const c = value / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  };
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const parse = (colour) => {
    const numbers = colour.match(/[\d.]+/g).map(Number);
    return [numbers[0], numbers[1], numbers[2], numbers.length > 3 ? numbers[3] : 1];
  };
  const over = (front, back) => [0, 1, 2].map((i) => front[i] * front[3] + back[i] * (1 - front[3])).concat(1);
  const canvas = () => (matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18, 1] : [255, 255, 255, 1]);
  const background = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce((back, front) => over(front, back), canvas());
  };
  const opacity = (element) => {
    let product = 1;
    for (let e = element; e; e = e.parentElement) product *= Number(getComputedStyle(e).opacity);
    return product;
  };
  const ratio = (a, b) => {
    const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const contrast = () => {
    const found = new Set();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const element = node.parentElement;
      if (!node.data.trim() || !shown(element) || ["STYLE", "SCRIPT"].includes(element.tagName)) continue;
      const back = background(element);
      const front = parse(getComputedStyle(element).color);
      front[3] *= opacity(element);
      const have = ratio(over(front, back), back);
      if (have < 4.5) found.add(describe(element) + " has a contrast of " + have.toFixed(2));
    }
    return [...found];
  };

  // WCAG 2.2, 1.4.10: nothing but tables and pictures is scrolled sideways, and those by the keyboard, too.
  const reflow = () => {
    const found = [];
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth > width) {
      found.push("the page is " + document.documentElement.scrollWidth + " px wide in a window of " + width);
    }
    for (const element of document.body.querySelectorAll("*")) {
      if (!shown(element)) continue;
      const scrolls = ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
      if (scrolls && element.scrollWidth > element.clientWidth && element.tabIndex < 0) {
        found.push(describe(element) + " is scrolled sideways, but has no focus");
      }
    }
    return found;
  };

  // What a keyboard has to reach, in order. A closed element of details hides what is in it, a group of radio buttons has one stop.
  const controls = () => [...document.querySelectorAll("a[href], summary, input, select, textarea, button, [tabindex]")]
    .filter((e) => e.tabIndex >= 0 && !e.disabled && shown(e));

  // The element that has the focus, as its place among the controls, and what is wrong with it.
  const focused = () => {
    const element = document.activeElement;
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    const problems = [];
    if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2) problems.push("no outline of 2 px");
    if (ratio(over(parse(style.outlineColor), background(element.parentElement || element)),
      background(element.parentElement || element)) < 3) problems.push("an outline whose contrast is below 3");
    if (box.bottom <= 0 || box.top >= innerHeight || box.right <= 0 || box.left >= innerWidth) problems.push("it is outside the window");
    return { index: controls().indexOf(element), name: describe(element), problems };
  };

  globalThis.audit = { contrast, reflow, focused, controls: () => controls().map(describe), ground: () => luminance(background(document.body)) };
})();
