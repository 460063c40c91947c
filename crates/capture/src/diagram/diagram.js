'use strict';
(async () => {
  const NONE = 0xffffffff, NAMES = 46, TIMES = 86, LARGEST = 8e6, BLOCK = 256, SPANNING = 64, MANY_OPEN = 2000;
  const byId = id => document.getElementById(id);
  const make = (tag, text, parent) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (parent) parent.append(element);
    return element;
  };
  const stage = byId('sequence');

  // The data: base64, deflated, then columns of numbers behind a JSON text.
  const packed = (text => {
    text = text.trim();
    const bytes = new Uint8Array(Math.floor(text.length * 3 / 4));
    let end = 0;
    for (let at = 0; at < text.length; at += 1 << 20) {
      const part = atob(text.slice(at, at + (1 << 20)));
      for (let i = 0; i < part.length; i++) bytes[end++] = part.charCodeAt(i);
    }
    return bytes.subarray(0, end);
  })(byId('unjank-bus').textContent);
  byId('unjank-bus').remove();
  const buffer = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'))).arrayBuffer();
  const [length, count] = new Uint32Array(buffer, 0, 2);
  const data = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  let offset = Math.ceil((8 + length) / 8) * 8;
  const column = Type => {
    const values = new Type(buffer, offset, count);
    offset += Math.ceil(values.byteLength / 8) * 8;
    return values;
  };
  const at = column(Float64Array), what = column(Uint32Array), from = column(Uint32Array), to = column(Uint32Array);
  const partner = column(Uint32Array), serial = column(Uint32Array), size = column(Uint32Array), body = column(Uint32Array), heard = column(Uint32Array);
  const [CALL, RETURN, ERROR, SIGNAL] = [0, 1, 2, 3];
  const text = number => data.texts[number];
  const whats = data.whats.map(([kind, iface, member, path, error, signature, flags]) => ({
    kind, iface: text(iface), member: text(member), path: text(path), error: text(error), signature: text(signature), flags }));
  const peers = data.peers;
  const time = ns => {
    if (ns === 0) return '0\u00a0ns';
    const units = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];
    const [scale, unit] = units.find(([scale]) => ns >= scale * 0.9995) || units[3];
    const value = ns / scale;
    return value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2) + '\u00a0' + unit;
  };
  const clock = ns => (ns / 1e9).toFixed(6);
  // Calls that nobody answered: how long was waited, and the last message by then. They took longer than any time.
  const waits = new Map(data.waits.map(([i, waited, end]) => [i, { waited, end }]));
  const latency = i => waits.has(i) ? Infinity : partner[i] === NONE ? NaN : Math.abs(at[partner[i]] - at[i]);
  const noAnswer = i => 'no answer in ' + time(waits.get(i).waited);
  const isError = i => whats[what[i]].kind === ERROR;

  // What is shown: all messages, or those that fit; `order` has their numbers, `place` where each stands.
  let order = null, place = null, shown = count;
  const messageAt = row => order ? order[row] : row;
  const rowOf = i => place ? place[i] : i;
  // The row at which the wait for a call ends.
  const endOf = i => {
    if (partner[i] !== NONE) return rowOf(partner[i]);
    if (!waits.has(i)) return NONE;
    const end = waits.get(i).end;
    if (!order) return end;
    let low = 0, high = shown;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (order[middle] <= end) low = middle + 1; else high = middle;
    }
    return low - 1;
  };
  // Calls that are open at the start of each block of rows: their arcs cross it.
  let spanning = [];
  // Long work is done in slices of a few milliseconds, so that the page stays alive; a newer turn ends an older one.
  const pause = () => new Promise(done => { const channel = new MessageChannel(); channel.port1.onmessage = done; channel.port2.postMessage(0); });
  let turns = 0;
  const slices = () => {
    const turn = ++turns;
    let until = performance.now() + 8;
    return async () => {
      if (performance.now() < until) return true;
      await pause();
      until = performance.now() + 8;
      return turn === turns;
    };
  };
  const span = async slice => {
    const open = Array.from({ length: Math.ceil(shown / BLOCK) + 1 });
    for (let row = 0; row < shown; row++) {
      if (row % 4096 === 4095 && !await slice()) return false;
      const i = messageAt(row);
      if (whats[what[i]].kind !== CALL || (waits.has(i) && waits.size > MANY_OPEN)) continue;
      const end = endOf(i);
      if (end === NONE) continue;
      for (let block = Math.floor(row / BLOCK) + 1; block * BLOCK <= end; block++) {
        if (!open[block]) open[block] = [];
        if (open[block].length < SPANNING) open[block].push(i);
      }
    }
    spanning = open;
    isDirty = true;
    return true;
  };

  const view = stage.querySelector('.view'), whole = stage.querySelector('.whole'), canvas = whole.querySelector('canvas');
  const map = stage.querySelector('.map canvas'), about = stage.querySelector('.about');
  const output = stage.querySelector('output'), search = stage.querySelector('input[type=search]'), only = byId('only');
  stage.hidden = false;
  for (const still of document.querySelectorAll('.static')) still.style.display = 'none';
  const paint = canvas.getContext('2d'), mapPaint = map.getContext('2d');
  let rowHeight = 26, columnWidth = 132, top = 0, left = 0, width = 0, height = 0, listWidth = 380;
  let picked = NONE, hovered = NONE, hits = null, hitCount = 0, expected = 0, isDirty = true;
  let colours = {};
  const record = window.unjankBus = { ready: false, draws: 0, longest: 0, rows: 0, drawn: 0, top: () => top, shown: () => shown, picked: () => picked, hits: () => hitCount, goTo: row => setTop(row) };

  const takeColours = () => {
    const style = getComputedStyle(document.documentElement);
    for (const name of ['paper', 'ink', 'soft', 'rule', 'field', 'call', 'reply', 'signal', 'misses', 'near', 'fits', 'band', 'pick', 'hit', 'aside', 'alarm']) colours[name] = style.getPropertyValue('--' + name).trim();
    isDirty = true;
  };
  const room = () => Math.max(1, (height - NAMES) / rowHeight);
  const tall = () => Math.min(LARGEST, shown * rowHeight + NAMES);
  const wide = () => listWidth + peers.length * columnWidth;
  const last = () => Math.max(0, shown - room());
  const toScroll = row => last() === 0 ? 0 : row / last() * Math.max(0, tall() - height);
  const fromScroll = scroll => tall() <= height ? 0 : scroll / (tall() - height) * last();
  const measure = () => {
    width = view.clientWidth;
    height = view.clientHeight;
    listWidth = width < 700 ? 210 : 380;
    const ratio = devicePixelRatio || 1;
    for (const [element, w, h] of [[canvas, width, height], [map, 16, height]]) {
      element.width = Math.round(w * ratio);
      element.height = Math.round(h * ratio);
      element.style.width = w + 'px';
      element.style.height = h + 'px';
    }
    paint.setTransform(ratio, 0, 0, ratio, 0, 0);
    mapPaint.setTransform(ratio, 0, 0, ratio, 0, 0);
    whole.style.height = tall() + 'px';
    whole.style.width = Math.max(width, wide()) + 'px';
    setTop(top);
    overview();
  };
  const setTop = row => {
    top = Math.max(0, Math.min(last(), row));
    expected = Math.round(toScroll(top));
    if (Math.abs(view.scrollTop - expected) > 0.5) view.scrollTop = expected;
    expected = view.scrollTop;
    isDirty = true;
  };

  // Marks of errors, slow calls and hits, the whole capture high.
  let marks = new Uint8Array(1000);
  const look = async slice => {
    const found = new Uint8Array(1000);
    for (let row = 0; row < shown; row++) {
      if (row % 4096 === 4095 && !await slice()) return false;
      const i = messageAt(row), bin = Math.floor(row / shown * found.length);
      if (isError(i)) found[bin] |= 1;
      if (latency(i) > data.frame_ns) found[bin] |= 2;
      if (hits && hits[i]) found[bin] |= 4;
    }
    marks = found;
    overview();
    return true;
  };
  const overview = () => {
    mapPaint.fillStyle = colours.paper;
    mapPaint.fillRect(0, 0, 16, height);
    for (const [bit, x, colour] of [[4, 0, colours.near], [2, 6, colours.call], [1, 11, colours.misses]]) {
      mapPaint.fillStyle = colour;
      for (let bin = 0; bin < marks.length; bin++) if (marks[bin] & bit) mapPaint.fillRect(x, bin / marks.length * height, 5, 2);
    }
  };

  const x = peer => listWidth + (peer + 0.5) * columnWidth - left;
  const y = row => NAMES + (row - top + 0.5) * rowHeight;
  const letters = room => Math.floor(room / 6.3);
  const cut = (text, room, keepEnd) => {
    const keep = most => {
      if (text.length <= most) return text;
      if (most < 2) return '';
      return keepEnd ? '…' + text.slice(1 - most) : text.slice(0, most - 1) + '…';
    };
    let most = Math.min(letters(room), text.length), said = keep(most);
    // Letters are not equally wide, those of a name set bold least of all.
    while (said && paint.measureText(said).width > room) said = keep(--most);
    return said;
  };
  const head = (tip, direction, isFull) => {
    const size = Math.min(6, rowHeight / 3);
    paint.beginPath();
    paint.moveTo(tip[0] - direction * size * 1.4, tip[1] - size * 0.75);
    paint.lineTo(tip[0], tip[1]);
    paint.lineTo(tip[0] - direction * size * 1.4, tip[1] + size * 0.75);
    if (isFull) { paint.closePath(); paint.fill(); } else { paint.stroke(); }
  };
  const arc = i => {
    const j = partner[i];
    const one = rowOf(i), other = endOf(i);
    if (one === NONE || other === NONE) return;
    const grade = latency(i);
    paint.strokeStyle = j !== NONE && isError(j) ? colours.misses : grade > data.frame_ns ? colours.misses : grade > data.frame_ns / 2 ? colours.near : colours.reply;
    paint.lineWidth = grade > data.frame_ns ? 2.4 : grade > data.frame_ns / 2 ? 1.8 : 1.1;
    const away = to[i] !== NONE && to[i] < from[i] ? 1 : -1;
    const bulge = away * Math.min(columnWidth * 0.44, 7 + 5 * Math.sqrt(other - one));
    const begin = Math.max(y(one), -4000), end = Math.min(y(other), height + 4000), line = x(from[i]);
    paint.beginPath();
    paint.moveTo(line, begin);
    paint.bezierCurveTo(line + bulge, begin + rowHeight / 3, line + bulge, end - rowHeight / 3, line, end);
    paint.stroke();
  };
  const draw = () => {
    const began = performance.now();
    isDirty = false;
    left = view.scrollLeft;
    paint.fillStyle = colours.paper;
    paint.fillRect(0, 0, width, height);
    const first = Math.max(0, Math.floor(top)), end = Math.min(shown, Math.ceil(top + room()) + 1);
    const letter = rowHeight >= 14;
    const mate = picked === NONE ? NONE : partner[picked];
    for (let row = first; row < end; row++) {
      const i = messageAt(row);
      const colour = i === picked || i === mate ? colours.pick : hits && hits[i] && !order ? colours.hit : isError(i) ? colours.band : row === hovered ? colours.field : '';
      if (!colour) continue;
      paint.fillStyle = colour;
      paint.fillRect(0, y(row) - rowHeight / 2, width, rowHeight);
    }
    // Columns, as long as their connections are there.
    paint.save();
    paint.beginPath();
    paint.rect(listWidth, NAMES, width - listWidth, height - NAMES);
    paint.clip();
    const firstColumn = Math.max(0, Math.floor(left / columnWidth)), endColumn = Math.min(peers.length, Math.ceil((left + width - listWidth) / columnWidth) + 1);
    paint.lineWidth = 1.5;
    paint.strokeStyle = colours.rule;
    paint.beginPath();
    for (let peer = firstColumn; peer < endColumn; peer++) {
      const begin = order ? 0 : Math.max(NAMES, y(peers[peer].first) - rowHeight / 2);
      const stop = order ? height : Math.min(height, y(peers[peer].last) + rowHeight / 2);
      if (stop > begin) { paint.moveTo(x(peer), begin); paint.lineTo(x(peer), stop); }
    }
    paint.stroke();
    // Arcs from each call to its answer on the caller's line.
    const arcs = new Set(spanning[Math.floor(first / BLOCK)] || []);
    for (let row = Math.floor(first / BLOCK) * BLOCK; row < end; row++) {
      const i = messageAt(row);
      if (waits.has(i)) arcs.add(i);
      else if (partner[i] !== NONE) arcs.add(whats[what[i]].kind === CALL ? i : partner[i]);
    }
    let drawn = 0;
    for (const i of arcs) {
      const begin = rowOf(i), stop = endOf(i);
      if (begin !== NONE && stop !== NONE && stop >= first && begin < end) { arc(i); drawn++; }
    }
    // Arrows.
    paint.font = '11px system-ui, sans-serif';
    paint.textAlign = 'center';
    paint.textBaseline = 'alphabetic';
    for (let row = first; row < end; row++) {
      const i = messageAt(row), kind = whats[what[i]], line = y(row), start = x(from[i]);
      drawn++;
      const colour = kind.kind === CALL ? colours.call : kind.kind === SIGNAL ? colours.signal : kind.kind === ERROR ? colours.misses : colours.reply;
      paint.strokeStyle = paint.fillStyle = colour;
      paint.lineWidth = 1.6;
      if (to[i] === NONE) {
        // To everybody: a line across with a dot at each that is known to hear it.
        paint.lineWidth = 1;
        paint.setLineDash([2, 3]);
        paint.beginPath();
        paint.moveTo(Math.max(listWidth, x(0) - columnWidth / 2), line);
        paint.lineTo(Math.min(width, x(peers.length - 1) + columnWidth / 2), line);
        paint.stroke();
        paint.setLineDash([]);
        paint.beginPath();
        paint.arc(start, line, Math.min(5, rowHeight / 4), 0, 7);
        paint.fill();
        for (const peer of data.fans[heard[i]] || []) {
          paint.beginPath();
          paint.arc(x(peer), line, Math.min(3, rowHeight / 5), 0, 7);
          paint.stroke();
        }
      } else {
        const tip = x(to[i]), direction = tip === start ? 1 : Math.sign(tip - start);
        const isSelf = from[i] === to[i];
        paint.setLineDash(kind.kind === RETURN || kind.kind === ERROR ? [5, 3] : kind.kind === SIGNAL ? [8, 2, 2, 2] : []);
        paint.beginPath();
        if (isSelf) paint.arc(start + 8, line, Math.min(8, rowHeight / 3), 2.6, 9.8); else { paint.moveTo(start, line); paint.lineTo(tip, line); }
        paint.stroke();
        paint.setLineDash([]);
        head([isSelf ? start + 2 : tip, line], isSelf ? -1 : direction, kind.kind !== RETURN);
        if (letter && rowHeight >= 20 && !isSelf) {
          const visible = Math.min(Math.max(start, tip), width) - Math.max(Math.min(start, tip), listWidth);
          const label = kind.kind === RETURN ? (partner[i] === NONE ? '' : time(latency(i))) : kind.kind === ERROR ? (kind.error.split('.').pop() + (partner[i] === NONE ? '' : ' ' + time(latency(i)))) : kind.member;
          const said = cut(label, visible - 16);
          if (said) {
            paint.fillStyle = kind.kind === ERROR ? colours.alarm : colours.soft;
            paint.fillText(said, (Math.min(Math.max(start, tip), width) + Math.max(Math.min(start, tip), listWidth)) / 2, line - 4);
          }
        }
      }
    }
    paint.restore();
    // The list at the left.
    paint.textAlign = 'left';
    paint.textBaseline = 'middle';
    if (letter) {
      for (let row = first; row < end; row++) {
        const i = messageAt(row), kind = whats[what[i]], line = y(row);
        if (line < NAMES - rowHeight) continue;
        paint.fillStyle = colours.soft;
        paint.font = '11px system-ui, sans-serif';
        paint.fillText(clock(at[i]), 8, line);
        paint.fillStyle = kind.kind === ERROR ? colours.alarm : kind.kind === RETURN ? colours.soft : colours.ink;
        const mark = ['→', '←', '▲', to[i] === NONE ? '◉' : '⇢'][kind.kind] || '·';
        const wait = waits.has(i) ? noAnswer(i) : partner[i] === NONE ? '' : time(latency(i));
        paint.fillText(mark, TIMES, line);
        const taken = wait && kind.kind !== RETURN && kind.kind !== ERROR ? paint.measureText(wait).width + 8 : 0;
        paint.font = (kind.kind === RETURN ? '' : '600 ') + '12px system-ui, sans-serif';
        const title = kind.kind === ERROR ? kind.error.split('.').pop() + ' of ' + kind.member : kind.member || '(reply)';
        const room = listWidth - TIMES - 26 - taken;
        const said = cut(title, room);
        paint.fillText(said, TIMES + 16, line);
        const used = paint.measureText(said).width + 10;
        if (kind.iface && room - used > 60 && rowHeight >= 18) {
          paint.fillStyle = colours.soft;
          paint.font = '11px system-ui, sans-serif';
          paint.fillText(cut(kind.iface, room - used, true), TIMES + 16 + used, line);
        }
        if (taken) {
          paint.fillStyle = latency(i) > data.frame_ns ? colours.alarm : colours.soft;
          paint.font = '11px system-ui, sans-serif';
          paint.textAlign = 'right';
          paint.fillText(wait, listWidth - 8, line);
          paint.textAlign = 'left';
        }
      }
    }
    // Losses, between the messages where they were.
    for (const loss of data.losses) {
      const line = y(rowOf(Math.min(loss.before, count - 1))) - rowHeight / 2;
      if (order || line < NAMES || line > height) continue;
      paint.fillStyle = colours.misses;
      paint.fillRect(0, line - 1, width, 2);
      paint.font = '600 11px system-ui, sans-serif';
      paint.fillText(loss.count + ' messages lost', 8, line - 7);
    }
    // Names of the columns.
    paint.fillStyle = colours.paper;
    paint.fillRect(0, 0, width, NAMES);
    paint.fillStyle = colours.rule;
    paint.fillRect(0, NAMES - 1, width, 1);
    paint.fillRect(listWidth, 0, 1, height);
    paint.save();
    paint.beginPath();
    paint.rect(listWidth + 1, 0, width, NAMES);
    paint.clip();
    paint.textAlign = 'center';
    for (let peer = firstColumn; peer < endColumn; peer++) {
      const [title, detail] = peers[peer].title;
      paint.fillStyle = colours.ink;
      paint.font = '600 12px system-ui, sans-serif';
      paint.fillText(cut(title, columnWidth - 8), x(peer), 16);
      paint.fillStyle = colours.soft;
      paint.font = '11px system-ui, sans-serif';
      paint.fillText(cut(detail, columnWidth - 8, true), x(peer), 33);
    }
    paint.restore();
    paint.textAlign = 'left';
    paint.fillStyle = colours.soft;
    paint.font = '11px system-ui, sans-serif';
    paint.fillText('seconds', 8, 33);
    paint.fillText('message', TIMES + 16, 33);
    const took = performance.now() - began;
    record.draws += 1;
    record.longest = Math.max(record.longest, took);
    record.rows = end - first;
    record.drawn = drawn;
  };
  const tick = () => {
    if (isDirty && width) draw();
    requestAnimationFrame(tick);
  };

  // What is known of one message.
  const fact = (list, name, value) => {
    if (!value) return;
    make('dt', name, list);
    make('dd', value, list);
  };
  const named = peer => peer === NONE ? 'everybody' : peers[peer].name;
  const pick = i => {
    picked = i;
    isDirty = true;
    about.hidden = i === NONE;
    if (i === NONE) { measure(); return; }
    const kind = whats[what[i]];
    about.replaceChildren();
    make('h3', (kind.iface ? kind.iface + '.' : '') + (kind.member || '(reply)'), about);
    const list = make('dl', undefined, about);
    const wait = latency(i);
    fact(list, 'kind', ['call', 'return', 'error', 'signal'][kind.kind] || 'other');
    if (kind.error) { make('dt', 'error', list); make('dd', kind.error, list).className = 'alarm'; }
    fact(list, 'at', clock(at[i]) + ' s, ' + new Date(data.start_ms + at[i] / 1e6).toISOString());
    if (waits.has(i)) { make('dt', 'answer', list); make('dd', noAnswer(i), list).className = 'alarm'; }
    else if (!isNaN(wait)) { make('dt', 'answer', list); make('dd', 'after ' + time(wait) + ' (' + (wait / data.frame_ns).toFixed(wait < data.frame_ns ? 2 : 0) + ' frames)', list).className = wait > data.frame_ns ? 'alarm' : ''; }
    else if (kind.kind === CALL) fact(list, 'answer', kind.flags & 1 ? 'none wanted' : 'not on this page');
    fact(list, 'from', named(from[i]));
    fact(list, 'to', named(to[i]));
    const ears = data.fans[heard[i]];
    if (ears && ears.length) fact(list, 'heard by', ears.slice(0, 12).map(named).join(', ') + (ears.length > 12 ? ' and ' + (ears.length - 12) + ' more' : ''));
    fact(list, 'object', kind.path);
    fact(list, 'serial', String(serial[i]));
    fact(list, 'bytes', String(size[i]));
    fact(list, 'types', kind.signature);
    if (data.buses.length > 1) fact(list, 'bus', peers[from[i]].bus);
    if (partner[i] !== NONE) {
      const button = make('button', kind.kind === CALL ? 'Its answer' : 'Its call', about);
      button.type = 'button';
      button.addEventListener('click', () => go(partner[i]));
    }
    const close = make('button', 'Close', about);
    close.type = 'button';
    close.addEventListener('click', () => { pick(NONE); view.focus(); });
    const said = data.bodies[body[i]];
    if (said) make('pre', said, about).tabIndex = 0;
    else if (kind.signature) make('p', data.bodies_left_out ? 'The body is not on this page: it would be too large.' : 'The body cannot be read.', about);
    measure();
  };
  const go = i => {
    let row = rowOf(i);
    if (row === NONE) {
      only.checked = false;
      order = place = null;
      shown = count;
      show();
      row = i;
    }
    pick(i);
    if (row < top + 1 || row > top + room() - 2) setTop(row - room() / 2);
    if (to[i] !== NONE || from[i] !== NONE) {
      const line = x(from[i]);
      if (line < listWidth || line > width) view.scrollLeft = Math.max(0, from[i] * columnWidth - (width - listWidth) / 2);
    }
  };

  // Search: words of which each must fit; work is done in slices so that the page stays alive.
  const span_ns = text => {
    const found = /^([\d.]+)(ns|us|µs|ms|s)$/.exec(text);
    return found ? Number(found[1]) * { ns: 1, us: 1e3, 'µs': 1e3, ms: 1e6, s: 1e9 }[found[2]] : NaN;
  };
  const kinds = { call: CALL, return: RETURN, reply: RETURN, error: ERROR, signal: SIGNAL };
  const find = async () => {
    const slice = slices();
    const words = search.value.toLowerCase().match(/[a-z-]+:"[^"]*"|"[^"]*"|\S+/g) || [];
    if (!words.length) { hits = null; hitCount = 0; output.textContent = ''; await show(); record.searched = ''; return; }
    const tests = [];
    const table = async (all, fits) => {
      const marks = new Uint8Array(all.length);
      for (let n = 0; n < all.length; n++) {
        marks[n] = fits(all[n]) ? 1 : 0;
        if (n % 256 === 255 && !await slice()) return null;
      }
      return marks;
    };
    for (const word of words) {
      const [, key, value] = /^(?:([a-z-]+):)?"?(.*?)"?$/.exec(word);
      const has = text => text.toLowerCase().includes(value);
      const ofWhat = async pick => { const marks = await table(whats, kind => has(pick(kind))); return marks && (i => marks[what[i]]); };
      const ofPeer = async column => { const marks = await table(peers, peer => has(peer.name)); return marks && (i => column[i] !== NONE && marks[column[i]]); };
      let test;
      if (key === 'from') test = await ofPeer(from);
      else if (key === 'to') test = await ofPeer(to);
      else if (key === 'member') test = await ofWhat(kind => kind.member);
      else if (key === 'iface') test = await ofWhat(kind => kind.iface);
      else if (key === 'path') test = await ofWhat(kind => kind.path);
      else if (key === 'error') { const marks = await table(whats, kind => kind.kind === ERROR && has(kind.error)); test = marks && (i => marks[what[i]]); }
      else if (key === 'type' && value in kinds) test = i => whats[what[i]].kind === kinds[value];
      else if (key === 'slower-than' && !isNaN(span_ns(value))) { const least = span_ns(value); test = i => latency(i) > least; }
      else {
        const plain = word.replace(/"/g, '');
        const holds = text => text.toLowerCase().includes(plain);
        const marks = await table(whats, kind => holds(kind.iface + '.' + kind.member + ' ' + kind.path + ' ' + kind.error));
        const ends = marks && await table(peers, peer => holds(peer.name));
        const bodies = ends && await table(data.bodies, holds);
        test = bodies && (i => marks[what[i]] || ends[from[i]] || (to[i] !== NONE && ends[to[i]]) || bodies[body[i]]);
      }
      if (!test) return;
      tests.push(test);
    }
    const found = new Uint8Array(count);
    let sum = 0;
    for (let i = 0; i < count; i++) {
      if (tests.every(test => test(i))) { found[i] = 1; sum++; }
      if (i % 4096 === 4095 && !await slice()) return;
    }
    hits = found;
    hitCount = sum;
    output.textContent = sum + ' of ' + count;
    const said = search.value;
    await show();
    record.searched = said;
  };
  const show = async () => {
    const slice = slices();
    const anchor = shown ? messageAt(Math.min(shown - 1, Math.floor(top))) : 0;
    let rows = null, places = null, row = 0;
    if (only.checked && hits) {
      const chosen = hits;
      rows = new Uint32Array(hitCount);
      places = new Uint32Array(count).fill(NONE);
      for (let i = 0, next = 0; i < count; i++) {
        if (i % 4096 === 4095 && !await slice()) return;
        if (chosen[i]) { rows[next] = i; places[i] = next++; if (i < anchor) row = next; }
      }
    } else {
      row = anchor;
    }
    order = rows;
    place = places;
    shown = rows ? rows.length : count;
    spanning = [];
    top = row;
    measure();
    if (await span(slice)) await look(slice);
  };
  const step = direction => {
    if (!hits || !hitCount) return;
    let i = picked === NONE ? messageAt(Math.floor(top)) : picked;
    for (let n = 0; n < count; n++) {
      i = (i + direction + count) % count;
      if (hits[i]) { go(i); return; }
    }
  };
  const zoom = (factor, row = top + room() / 2) => {
    const share = (row - top) * rowHeight;
    rowHeight = Math.max(3, Math.min(60, rowHeight * factor));
    columnWidth = Math.max(70, Math.min(260, columnWidth * Math.sqrt(factor)));
    top = row - share / rowHeight;
    measure();
  };

  let waiting = 0;
  search.addEventListener('input', () => { clearTimeout(waiting); waiting = setTimeout(find, 120); });
  search.addEventListener('keydown', event => { if (event.key === 'Enter') { event.preventDefault(); step(event.shiftKey ? -1 : 1); } });
  only.addEventListener('change', show);
  byId('nearer').addEventListener('click', () => zoom(1.3));
  byId('farther').addEventListener('click', () => zoom(1 / 1.3));
  view.addEventListener('scroll', () => {
    if (Math.abs(view.scrollTop - expected) > 1) { expected = view.scrollTop; top = fromScroll(view.scrollTop); }
    isDirty = true;
  });
  view.addEventListener('wheel', event => {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 3 : event.deltaMode === 2 ? room() : 1 / rowHeight;
    if (event.ctrlKey) { zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, top + (event.offsetY - NAMES) / rowHeight); return; }
    if (event.shiftKey) { view.scrollLeft += event.deltaY; return; }
    view.scrollLeft += event.deltaX;
    setTop(top + event.deltaY * unit);
  }, { passive: false });
  const under = event => {
    const place = view.getBoundingClientRect();
    const row = Math.floor(top + (event.clientY - place.top - NAMES) / rowHeight);
    return event.clientY - place.top < NAMES || row < 0 || row >= shown ? NONE : row;
  };
  view.addEventListener('mousemove', event => { const row = under(event); if (row !== hovered) { hovered = row; isDirty = true; } });
  view.addEventListener('mouseleave', () => { hovered = NONE; isDirty = true; });
  view.addEventListener('click', event => { const row = under(event); if (row !== NONE) { view.focus(); pick(messageAt(row)); } });
  map.addEventListener('click', event => setTop(event.offsetY / height * shown - room() / 2));
  view.addEventListener('keydown', event => {
    const row = picked === NONE || rowOf(picked) === NONE ? Math.floor(top) - 1 : rowOf(picked);
    const page = Math.max(1, Math.floor(room()) - 1);
    const steps = { ArrowDown: row + 1, ArrowUp: row - 1, PageDown: row + page, PageUp: row - page, Home: 0, End: shown - 1 };
    if (event.key in steps && shown) { go(messageAt(Math.max(0, Math.min(shown - 1, steps[event.key])))); }
    else if (event.key === 'Enter' && picked !== NONE && partner[picked] !== NONE) go(partner[picked]);
    else if (event.key === 'Escape') pick(NONE);
    else if (event.key === 'ArrowLeft') view.scrollLeft -= columnWidth;
    else if (event.key === 'ArrowRight') view.scrollLeft += columnWidth;
    else if (event.key === '+' || event.key === '=') zoom(1.3);
    else if (event.key === '-') zoom(1 / 1.3);
    else if (event.key === 'n') step(1);
    else if (event.key === 'N') step(-1);
    else return;
    event.preventDefault();
  });
  addEventListener('keydown', event => {
    if (event.key === '/' && document.activeElement !== search) { event.preventDefault(); search.focus(); }
  });
  new ResizeObserver(measure).observe(view);
  const repaint = () => { takeColours(); overview(); };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
  for (const choice of document.querySelectorAll('.switch input')) choice.addEventListener('change', repaint);
  takeColours();
  measure();
  await show();
  record.ready = true;
  requestAnimationFrame(tick);
})().catch(error => {
  document.getElementById('sequence').hidden = true;
  for (const still of document.querySelectorAll('.static')) still.style.display = '';
  console.error(error);
});
