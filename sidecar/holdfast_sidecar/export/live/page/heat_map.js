// Ranks x time on a canvas; pointing at a cell, or moving to it by keys, tells what it is.

const map = {view: null, rows: [], at: null, image: null};

const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`).value;

function showHeat(view) {
  map.view = view;
  map.rows = arranged(view.heat, chosen('rows'));
  map.image = null;
  const isEmpty = !map.rows.length || !view.heat.columns.length;
  $('heat-empty').hidden = !isEmpty;
  $('heat').hidden = isEmpty;
  if (isEmpty) return;
  showLegend(view.heat, chosen('colour'));
  $('heat').setAttribute('aria-label', describedMap(view));
  drawHeat();
  if (map.at && $('heat') === document.activeElement) tellCell();
}

function describedMap(view) {
  const {columns, rows} = view.heat, slow = view.slow.map((one) => one.rank).filter((rank) => rank >= 0);
  const who = slow.length ? `slow: ranks ${[...new Set(slow)].join(', ')}` : 'nobody is slow';
  return `Heat map of ${rows.length} rows of ranks over ${span(columns[columns.length - 1] - columns[0])}; ${who}. The table below tells the ranks of now.`;
}

function drawHeat() {
  const canvas = $('heat'), {heat} = map.view, ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth, size = sizes(map.rows.length, heat.columns.length, width);
  canvas.style.height = `${size.height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(size.height * ratio);
  const context = canvas.getContext('2d');
  context.scale(ratio, ratio);
  context.imageSmoothingEnabled = false;
  map.image = map.image || heatImage(heat, map.rows, chosen('colour'));
  context.drawImage(map.image, GUTTER, 0, heat.columns.length * size.wide, map.rows.length * size.high);
  if (chosen('colour') === 'own') drawLoud(context, map.rows, size);
  labelRows(context, size);
  labelTimes(context, size);
  outline(context, size);
}

function labelRows(context, size) {
  // As many numbers as there is room for; ranks that are slow have a mark in any case.
  context.font = '11px system-ui, sans-serif';
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  const slow = new Set(map.view.slow.map((one) => one.rank)), {perRow} = map.view.heat;
  const red = cssOf('--red'), quiet = cssOf('--quiet');
  let every = 1;
  while (every * size.high < 14) every *= 2;
  map.rows.forEach((row, down) => {
    const middle = (down + 0.5) * size.high;
    let isSlow = false;
    for (let rank = row.rank; rank < row.rank + perRow; rank++) isSlow = isSlow || slow.has(rank);
    context.fillStyle = isSlow ? red : quiet;
    if (down % every === 0) context.fillText(String(row.rank), GUTTER - 14, Math.max(6, middle));
    if (isSlow) context.fillRect(GUTTER - 9, middle - Math.max(1.5, size.high / 2), 6, Math.max(3, size.high));
  });
}

function labelTimes(context, size) {
  const {columns} = map.view.heat, top = map.rows.length * size.high + 5;
  context.textBaseline = 'top';
  context.textAlign = 'left';
  context.fillStyle = cssOf('--quiet');
  for (const [left, words] of timeLabels(context, columns, size, $('heat').clientWidth)) {
    context.fillRect(left - 2, top - 4, 1, 4);
    context.fillText(words, left, top);
  }
}

function timeLabels(context, columns, size, width) {
  // Where each begins, and what it says; one that the edge would cut off is left out.
  const every = Math.max(1, Math.ceil(90 / size.wide)), labels = [];
  for (let at = 0; at < columns.length; at += every) {
    const left = GUTTER + at * size.wide + 2, words = clock(columns[at]);
    if (left + context.measureText(words).width <= width) labels.push([left, words]);
  }
  return labels;
}

function outline(context, size) {
  if (!map.at) return;
  const {row, column} = map.at;
  context.strokeStyle = cssOf('--text');
  context.lineWidth = 1;
  context.strokeRect(GUTTER + column * size.wide - 0.5, row * size.high - 0.5, size.wide + 1, Math.max(3, size.high) + 1);
}

function tellCell() {
  const {heat, ranks} = map.view, row = map.rows[map.at.row], column = map.at.column;
  if (!row || heat.columns[column] === undefined) return;
  const rank = ranks.find((one) => one.rank === row.rank), level = row.levels[column];
  const who = heat.perRow > 1 ? `ranks ${row.rank} to ${row.rank + heat.perRow - 1}, the slowest of them` : `rank ${row.rank}`;
  const where = rank ? ` on ${rank.node}` : '', step = heat.steps[column];
  const parts = [`${who}${where}`, clock(heat.columns[column])];
  if (step !== null && step !== undefined) parts.push(`step ${count(step)}`);
  const phase = heat.names[row.phases[column] - 1];
  if (phase) parts.push(phase);
  parts.push(level === NOTHING ? 'own work not told' : `own work ${ratioOf(level).toFixed(2)} × the median of its role`);
  say('cell', parts.join(' · '));
}

function pointAt(event) {
  if (!map.view || !map.rows.length) return;
  const box = $('heat').getBoundingClientRect(), {columns} = map.view.heat;
  const size = sizes(map.rows.length, columns.length, box.width);
  const column = Math.floor((event.clientX - box.left - GUTTER) / size.wide), row = Math.floor((event.clientY - box.top) / size.high);
  moveTo(loudest(map.rows, row, column, size), column, false);
}

function moveTo(row, column, isKept) {
  const last = map.view.heat.columns.length - 1, lowest = map.rows.length - 1;
  const isOutside = row < 0 || row > lowest || column < 0 || column > last;
  if (isOutside && !isKept) return;
  map.at = {row: Math.max(0, Math.min(lowest, row)), column: Math.max(0, Math.min(last, column))};
  drawHeat();
  tellCell();
}

const MOVES = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-16, 0], PageDown: [16, 0], Home: [0, -1e9], End: [0, 1e9]};

function steer(event) {
  const move = MOVES[event.key];
  if (!move || !map.view || !map.rows.length) return;
  event.preventDefault();
  const at = map.at || {row: 0, column: map.view.heat.columns.length - 1};
  moveTo(at.row + (map.at ? move[0] : 0), at.column + (map.at ? move[1] : 0), true);
}

function watchHeat() {
  $('heat').addEventListener('pointermove', pointAt);
  $('heat').addEventListener('pointerdown', pointAt);
  $('heat').addEventListener('keydown', steer);
  for (const input of document.querySelectorAll('#heat-section input')) {
    input.addEventListener('change', () => { map.at = null; if (map.view) showHeat(map.view); });
  }
  const again = () => { if (map.view) showHeat(map.view); };
  dark.addEventListener('change', again);
  addEventListener('resize', again);
}
