'use strict';
(() => {
  const report = JSON.parse(document.getElementById('unjank-trace').textContent);
  const $ = (selector, root) => [...(root || document).querySelectorAll(selector)];
  const make = (tag, text, parent) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (parent) parent.append(element);
    return element;
  };
  const time = ns => {
    if (ns === 0) return '0\u00a0ns';
    const units = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];
    const [scale, unit] = units.find(([scale]) => ns >= scale * 0.9995) || units[3];
    const value = ns / scale;
    return value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2) + '\u00a0' + unit;
  };

  // What is known of a slow call, beside its bar.
  const hint = make('div', undefined, document.body);
  hint.id = 'hint';
  hint.hidden = true;
  hint.setAttribute('role', 'tooltip');
  const show = bar => {
    const call = report.slow[bar.dataset.slow];
    if (!call) return;
    hint.replaceChildren();
    make('b', call.arguments, hint);
    const parts = [time(call.wall_ns) + ' at ' + time(call.at_ns)];
    if (call.cpu_ns !== undefined) parts.push(time(call.cpu_ns) + ' on a CPU');
    if (call.queued_ns !== undefined) parts.push(time(call.queued_ns) + ' waiting for one');
    if (call.error) parts.push(call.error);
    if (call.running) parts.push('still running');
    if (call.how) parts.push(call.how === 'idle' ? 'idle' : 'waiting for a child');
    make('div', parts.join(' · '), hint);
    const stack = report.stacks[call.stack];
    if (stack) {
      const list = make('ol', undefined, hint);
      list.className = 'stack';
      for (const [depth, at] of stack.frames.slice(0, 14).entries()) {
        const frame = report.frames[at];
        const item = make('li', frame.name + (frame.module ? '  ' + frame.module : ''), list);
        item.className = depth === stack.blamed ? 'blamed' : frame.folded ? 'folded' : '';
      }
    }
    hint.hidden = false;
    const place = bar.getBoundingClientRect();
    const size = hint.getBoundingClientRect();
    const below = place.bottom + 8;
    hint.style.left = Math.max(8, Math.min(place.left, innerWidth - size.width - 8)) + 'px';
    hint.style.top = (below + size.height < innerHeight ? below : Math.max(8, place.top - size.height - 8)) + 'px';
  };
  const hide = () => { hint.hidden = true; };
  for (const bar of $('[data-slow]')) {
    // The panel says it; a second one of the browser's would cover it.
    const title = bar.querySelector('title');
    if (title) {
      bar.setAttribute('aria-label', title.textContent);
      title.remove();
    }
    bar.addEventListener('mouseenter', () => show(bar));
    bar.addEventListener('focus', () => show(bar));
    bar.addEventListener('mouseleave', hide);
    bar.addEventListener('blur', hide);
  }
  addEventListener('keydown', event => { if (event.key === 'Escape') hide(); });

  // Headings sort; the largest figure comes first.
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent.trim() : Number(cell.dataset.v);
  };
  for (const table of $('table.sorts')) {
    for (const [column, heading] of $('thead th', table).entries()) {
      const button = make('button', heading.textContent);
      button.type = 'button';
      heading.replaceChildren(button);
      button.addEventListener('click', () => {
        const before = heading.getAttribute('aria-sort');
        for (const other of $('th', table)) other.removeAttribute('aria-sort');
        const body = table.tBodies[0];
        const rows = [...body.rows];
        const numbers = typeof value(rows[0], column) === 'number';
        const down = before ? before === 'ascending' : numbers;
        heading.setAttribute('aria-sort', down ? 'descending' : 'ascending');
        rows.sort((a, b) => {
          const [x, y] = [value(a, column), value(b, column)];
          const order = numbers ? x - y : x < y ? -1 : x > y ? 1 : 0;
          return down ? -order : order;
        });
        body.append(...rows);
      });
    }
  }

  // One word filters every table and fades what it does not name in the pictures.
  const tools = document.getElementById('tools');
  if (!tools) return;
  tools.hidden = false;
  const [input, output, all] = ['input', 'output', 'button'].map(tag => tools.querySelector(tag));
  const filter = () => {
    const word = input.value.trim().toLowerCase();
    let shown = 0, rows = 0;
    for (const row of $('table.sorts tbody tr')) {
      const fits = row.textContent.toLowerCase().includes(word);
      row.hidden = !fits;
      rows += 1;
      shown += fits;
    }
    for (const bar of $('[data-slow]')) {
      const call = report.slow[bar.dataset.slow];
      const stack = report.stacks[call.stack];
      const names = stack ? stack.frames.map(at => report.frames[at].name).join(' ') : '';
      bar.classList.toggle('faded', !(call.arguments + ' ' + names).toLowerCase().includes(word));
    }
    for (const dot of $('.dot[data-name]')) {
      dot.classList.toggle('faded', !dot.dataset.name.toLowerCase().includes(word));
    }
    output.textContent = word ? shown + ' of ' + rows + ' rows' : '';
  };
  input.addEventListener('input', filter);
  addEventListener('keydown', event => {
    if (event.key === '/' && document.activeElement !== input) {
      event.preventDefault();
      input.focus();
    }
  });
  all.addEventListener('click', () => {
    const folded = $('td details');
    const open = folded.some(part => !part.open);
    for (const part of folded) part.open = open;
    all.textContent = open ? 'Fold all stacks' : 'Open all stacks';
  });
})();
