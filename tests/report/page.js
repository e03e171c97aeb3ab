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
  const charts = [...document.querySelectorAll('svg:not(svg svg)')].filter(shown);
  if (charts.length === 0) problems.push('there are no charts');
  for (const e of charts) {
    const box = e.getBoundingClientRect();
    if (box.width < 20 || box.height < 4) problems.push(`no size: ${short(e)}`);
    if (box.left < -1 || box.right > root.clientWidth + 1) problems.push(`outside: ${short(e)}`);
    if (e.ariaHidden !== 'true' && !(e.getAttribute('role') === 'img' && e.ariaLabel))
      problems.push(`no name: ${short(e)}`);
    if (e.ariaHidden !== 'true' && e.getBBox().width === 0) problems.push(`empty: ${short(e)}`);
    // What must not be torn apart by the end of a page.
    if (paper && !e.closest('figure, li, .legend, .verdict')) problems.push(`may be torn: ${short(e)}`);
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
  for (const [selector, property] of [['.bar', 'fill'], ['.above', 'fill'], ['.within', 'fill'],
    ['.bound', 'stroke'], ['.line0', 'stroke'], ['.line1', 'stroke']]) {
    const e = document.querySelector(selector);
    if (!e) continue;
    const c = contrast(rgb(getComputedStyle(e)[property]), background(e.closest('svg')));
    if (c < 2.5) problems.push(`contrast ${c.toFixed(1)} of shapes is too low: ${selector}`);
  }
  const apart = (words) => {
    const boxes = [...words].filter(shown).map((e) => [e, e.getBoundingClientRect()]);
    boxes.forEach(([e, a], i) => boxes.slice(0, i).forEach(([other, b]) => {
      if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1)
        problems.push(`"${e.textContent}" lies upon "${other.textContent}"`);
    }));
  };
  for (const group of document.querySelectorAll('.axis, .legend')) apart(group.children);
  for (const group of document.querySelectorAll('.facets'))
    apart(group.querySelectorAll('figcaption, .ticks span, .words span'));

  // The verdict comes first, in words and with a sign.
  const verdict = document.querySelector('main > h1 + p + .verdict');
  if (!verdict?.querySelector('h2')?.textContent || !verdict.querySelector('svg[aria-label]'))
    problems.push('there is no verdict');

  // What is large is named without pointing at it; each chart of errors has its bound.
  const errors = [...document.querySelectorAll('.facets figure')].filter((e) => e.querySelector('.within, .above'));
  if (errors.length === 0) problems.push('there are no charts of errors');
  for (const e of errors) {
    if (!e.querySelector('.note')?.textContent) problems.push(`no layer is named: ${short(e)}`);
    const box = e.querySelector('svg').getBoundingClientRect();
    const bound = e.querySelector('svg .bound')?.getBoundingClientRect();
    const limit = e.querySelector('.limit')?.getBoundingClientRect();
    if (!bound || !limit) problems.push(`no bound: ${short(e)}`);
    else if (shown(e) && (Math.abs((limit.top + limit.bottom - bound.top - bound.bottom) / 2) > 2 ||
      bound.top < box.top - 1 || bound.bottom > box.bottom + 1)) problems.push(`a bound out of place: ${short(e)}`);
  }
  const bars = [...document.querySelectorAll('.bars svg')];
  if (bars.length === 0 || bars.some((e) => !e.querySelector('.bound'))) problems.push('bars without a bound');

  // A legend says each thing once.
  const meanings = [...document.querySelectorAll('.legend > *')].map((e) => e.textContent);
  if (meanings.length === 0) problems.push('there is no legend');
  if (new Set(meanings).size < meanings.length) problems.push(`a legend is repeated: ${meanings}`);

  // Charts of one sort have the same axis, which is named once in each row of them.
  for (const sort of ['.within, .above', '.line0']) {
    const plots = [...document.querySelectorAll('.plot')].filter((e) => e.querySelector(sort));
    if (new Set(plots.map((e) => e.querySelector('.ticks').innerHTML)).size > 1)
      problems.push(`axes differ: ${sort}`);
    const rows = new Map();
    for (const e of plots.filter(shown)) {
      const row = Math.round(e.getBoundingClientRect().bottom);
      rows.set(row, (rows.get(row) ?? 0) + (shown(e.querySelector('.ticks')) ? 1 : 0));
    }
    for (const [row, count] of rows)
      if (count !== 1) problems.push(`${count} names of an axis in a row of charts, at ${row}: ${sort}`);
  }

  // Words and charts are equally wide.
  const main = document.querySelector('main').getBoundingClientRect();
  for (const e of document.querySelectorAll('main > *, main > details > *')) {
    const box = e.getBoundingClientRect();
    if (shown(e) && (Math.abs(box.left - main.left) > 1 || Math.abs(box.right - main.right) > 1))
      problems.push(`narrower than the page: ${short(e)}`);
  }
  return [...new Set(problems)].slice(0, 20);
})()
