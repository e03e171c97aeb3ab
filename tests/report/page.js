// Run inside a report: what is wrong with its layout as it is shown now, as a list of sentences.
(() => {
  const problems = [];
  const short = (e) => `<${e.localName} class="${e.getAttribute('class') ?? ''}"> ` +
    `"${(e.getAttribute('aria-label') ?? e.textContent).trim().slice(0, 60)}"`;
  const shown = (e) => e.checkVisibility();

  // The page is as wide as the window; only tables scroll, and not on paper.
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth)
    problems.push(`the page is ${root.scrollWidth} px wide in ${root.clientWidth} px`);
  const paper = matchMedia('print').matches;
  for (const e of document.querySelectorAll('.scroll'))
    if (paper && e.scrollWidth > e.clientWidth) problems.push(`cut off on paper: ${short(e)}`);

  // Every chart has a size, lies within the window, and has a name unless it is only decoration.
  const charts = [...document.querySelectorAll('svg')].filter(shown);
  if (charts.length === 0) problems.push('there are no charts');
  for (const e of charts) {
    const box = e.getBoundingClientRect();
    if (box.width < 20 || box.height < 4) problems.push(`no size: ${short(e)}`);
    if (box.left < -1 || box.right > root.clientWidth + 1) problems.push(`outside: ${short(e)}`);
    if (e.ariaHidden !== 'true' && !(e.getAttribute('role') === 'img' && e.ariaLabel))
      problems.push(`no name: ${short(e)}`);
    if (e.ariaHidden !== 'true' && e.getBBox().width === 0) problems.push(`empty: ${short(e)}`);
    // What must not be torn apart by the end of a page.
    if (paper && !e.closest('figure, li')) problems.push(`may be torn: ${short(e)}`);
    if (paper && box.height > 900) problems.push(`higher than a page: ${short(e)}`);
  }

  // Words: large enough, with contrast, not clipped, and none above another within a chart.
  const rgb = (text) => text.match(/[\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => v / 255)
      .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const contrast = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const background = (e) => {
    for (; e; e = e.parentElement) {
      const colour = rgb(getComputedStyle(e).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const words = [...document.body.querySelectorAll('*')].filter((e) => !e.closest('svg') && shown(e) &&
    [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim()));
  for (const e of words) {
    const style = getComputedStyle(e);
    if (parseFloat(style.fontSize) < 9) problems.push(`${style.fontSize} is too small: ${short(e)}`);
    const c = contrast(rgb(style.color), background(e));
    if (c < 4.5) problems.push(`contrast ${c.toFixed(1)} is too low: ${short(e)}`);
    if (e.closest('.scroll')) continue;
    const box = e.getBoundingClientRect();
    if (box.left < -1 || box.right > root.clientWidth + 1) problems.push(`words outside: ${short(e)}`);
  }
  for (const [selector, property] of [['.bar', 'fill'], ['.line0', 'stroke'], ['.line1', 'stroke'],
    ['.dot', 'stroke']]) {
    const e = document.querySelector(selector);
    if (!e) continue;
    const c = contrast(rgb(getComputedStyle(e)[property]), background(e.closest('svg')));
    if (c < 2.5) problems.push(`contrast ${c.toFixed(1)} of shapes is too low: ${selector}`);
  }
  for (const group of document.querySelectorAll('.ticks, .axis, .legend')) {
    const boxes = [...group.children].filter(shown).map((e) => [e, e.getBoundingClientRect()]);
    boxes.forEach(([e, a], i) => boxes.slice(0, i).forEach(([other, b]) => {
      if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1)
        problems.push(`"${e.textContent}" lies upon "${other.textContent}"`);
    }));
  }
  return [...new Set(problems)].slice(0, 20);
})()
