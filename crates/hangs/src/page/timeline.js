'use strict';
(() => {
  const { local_ms, length_ms, hangs } = JSON.parse(document.getElementById('unjank-hangs').textContent);
  const $ = (selector, root) => [...(root || document).querySelectorAll(selector)];
  const svg = document.querySelector('figure svg');
  const tools = document.getElementById('tools');
  const life = svg && svg.querySelector('.life');
  if (!tools || !life) return;
  tools.hidden = false;
  const [input, cause, output] = ['input', 'select', 'output'].map(tag => tools.querySelector(tag));
  const numbers = path => path.getAttribute('d').match(/[\d.]+/g).map(Number);
  const lanes = $('.life', svg).map(numbers);
  const [left, , right] = lanes[0];
  // A lane is as high above its middle as below it.
  const high = 12.5, top = lanes[0][1] - high, bottom = lanes[lanes.length - 1][1] + high;
  const bars = $('[data-slow]', svg).map(bar => ({ bar, number: bar.dataset.slow }));
  const sheets = new Map($('details[id^=hang-]').map(sheet => [sheet.id.slice(5), sheet]));
  const named = 'http://www.w3.org/2000/svg';

  // The part of the span that is shown, in milliseconds since its beginning.
  let [from, to] = [0, length_ms];
  const place = at => left + (at - from) / (to - from) * (right - left);
  const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  const label = (at, step) => {
    const time = new Date(at).toISOString();
    if (step >= 60e3) return to - from > 86400e3 && at % 86400e3 === 0 ? time.slice(5, 10) : time.slice(11, 16);
    return step >= 1e3 ? time.slice(11, 19) : time.slice(17, 23).replace(/0+$/, '').replace(/\.$/, '') + ' s';
  };
  const step_of = length => {
    const most = 8;
    if (length < 8e3) return 10 ** Math.ceil(Math.log10(length / most));
    const fits = STEPS.find(step => Math.floor(length / (step * 1e3)) <= most);
    return fits ? fits * 1e3 : Math.ceil(length / most / 86400e3) * 86400e3;
  };
  const add = (name, attributes, text) => {
    const element = document.createElementNS(named, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    svg.insertBefore(element, life);
  };
  const draw = () => {
    for (const old of $('.grid, .tick', svg)) old.remove();
    const step = step_of(to - from);
    for (let at = Math.ceil((local_ms + from) / step) * step; at <= local_ms + to; at += step) {
      const x = place(at - local_ms).toFixed(1);
      add('path', { d: `M${x} ${top}L${x} ${bottom + 4}`, class: 'grid' });
      add('text', { x, y: bottom + 18, 'text-anchor': 'middle', class: 'tick' }, label(at, step));
    }
    for (const { bar, number } of bars) {
      const [at, length] = hangs[number];
      const [begin, end] = [Math.max(left, place(at)), Math.min(right, place(at + length))];
      // What is beyond the ends of the picture is not in it; what is in it can be seen.
      bar.style.display = place(at) > right || place(at + length) < left ? 'none' : '';
      const width = Math.max(end - begin, to - from === length_ms ? (right - left) / 400 : 1.2);
      bar.setAttribute('x', Math.min(begin, right - width).toFixed(1));
      bar.setAttribute('width', width.toFixed(1));
    }
    for (const button of $('[data-zoom]', tools)) {
      if (button.dataset.zoom !== 'in') button.disabled = to - from === length_ms;
    }
  };
  const show = (begin, end) => {
    const length = Math.min(Math.max(end - begin, Math.min(100, length_ms)), length_ms);
    from = Math.min(Math.max(begin, 0), length_ms - length);
    to = from + length;
    draw();
  };
  // Around a moment that stays where it is.
  const zoom = (by, around) => show(around - (around - from) * by, around + (to - around) * by);
  const move = by => show(from + (to - from) * by, to + (to - from) * by);
  const moment = event => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    return from + (Math.min(Math.max(x, left), right) - left) / (right - left) * (to - from);
  };

  // A hang's sheet is below, and opens when its bar is chosen.
  const open = number => {
    const sheet = sheets.get(number);
    if (!sheet) return;
    sheet.hidden = false;
    sheet.open = true;
    sheet.scrollIntoView({ block: 'nearest' });
    sheet.querySelector('summary').focus({ preventScroll: true });
  };

  let began = null;
  const selection = document.createElementNS(named, 'rect');
  selection.setAttribute('class', 'selection');
  svg.append(selection);
  const select = (a, b) => {
    selection.setAttribute('x', Math.min(a, b));
    selection.setAttribute('y', top);
    selection.setAttribute('width', Math.abs(a - b));
    selection.setAttribute('height', bottom - top);
  };
  svg.addEventListener('pointerdown', event => {
    if (event.button === 0) began = { at: moment(event), x: event.clientX, bar: event.target.closest('[data-slow]') };
  });
  addEventListener('pointermove', event => {
    if (!began || Math.abs(event.clientX - began.x) < 5) return;
    event.preventDefault();
    select(place(began.at), place(moment(event)));
  });
  addEventListener('pointerup', event => {
    if (!began) return;
    const { at, x, bar } = began;
    began = null;
    select(left, left);
    if (Math.abs(event.clientX - x) >= 5) show(Math.min(at, moment(event)), Math.max(at, moment(event)));
    else if (bar) open(bar.dataset.slow);
  });
  addEventListener('pointercancel', () => { began = null; select(left, left); });
  svg.addEventListener('wheel', event => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, moment(event));
  }, { passive: false });
  svg.setAttribute('tabindex', '0');
  svg.addEventListener('keydown', event => {
    const bar = event.target.closest('[data-slow]');
    const middle = (from + to) / 2;
    const keys = {
      '+': () => zoom(0.5, middle), '-': () => zoom(2, middle), '0': () => show(0, length_ms),
      ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25),
      Enter: bar ? () => open(bar.dataset.slow) : undefined,
    };
    if (!keys[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  for (const button of $('[data-zoom]', tools)) {
    const middle = () => (from + to) / 2;
    const does = { in: () => zoom(0.5, middle()), out: () => zoom(2, middle()), all: () => show(0, length_ms) };
    button.addEventListener('click', does[button.dataset.zoom]);
  }

  // One word, and a cause, choose what is listed; the bars of the others fade.
  const texts = new Map([...sheets].map(([number, sheet]) => [number, sheet.textContent.toLowerCase()]));
  const filter = () => {
    const word = input.value.trim().toLowerCase();
    const fits = number => (!cause.value || hangs[number][2] === cause.value) && (texts.get(number) || '').includes(word);
    let shown = 0;
    for (const [number, sheet] of sheets) {
      sheet.hidden = !fits(number);
      shown += !sheet.hidden;
    }
    for (const { bar, number } of bars) bar.classList.toggle('faded', !fits(number));
    output.textContent = word || cause.value ? shown + ' of ' + sheets.size + (sheets.size === 1 ? ' hang' : ' hangs') : '';
  };
  input.addEventListener('input', filter);
  cause.addEventListener('change', filter);
  addEventListener('keydown', event => {
    const typed = event.target.closest && event.target.closest('input, select');
    if (event.key === '/' && !typed) {
      event.preventDefault();
      input.focus();
    }
  });
  // A browser may have kept what was chosen when the page was there before.
  filter();
  draw();
})();
