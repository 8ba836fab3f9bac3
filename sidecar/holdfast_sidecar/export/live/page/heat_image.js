// The map as pixels: one for each cell, then stretched to the room there is.

const GUTTER = 64, AXIS = 22, TALLEST = 460, WIDEST_COLUMN = 18, HIGHEST_ROW = 22;

const SLOWEST = 64, LOUD = 29, THIN = 3;
// Rows that are shown of the slowest; a level of 1.2 times the median; pixels that are seen at once.

function arranged(heat, order) {
  // Rows in the order they are shown. Slowest first: by the mean of the columns, as far as told.
  if (order !== 'slow') return heat.rows;
  const mean = (row) => {
    let sum = 0, told = 0;
    for (const level of row.levels) if (level !== NOTHING) { sum += level; told++; }
    return told ? sum / told : 0;
  };
  const means = new Map(heat.rows.map((row) => [row, mean(row)]));
  const sorted = [...heat.rows].sort((one, other) => means.get(other) - means.get(one) || one.rank - other.rank);
  return sorted.slice(0, SLOWEST);
}

function sizes(rows, columns, width) {
  // A row is a pixel at least: of a thousand ranks the map is a thousand pixels tall.
  const high = Math.max(1, Math.min(HIGHEST_ROW, Math.floor(TALLEST / Math.max(1, rows))));
  const wide = Math.min(WIDEST_COLUMN, (width - GUTTER) / Math.max(1, columns));
  return {high, wide, height: rows * high + AXIS};
}

function heatImage(heat, rows, colour) {
  const width = heat.columns.length, canvas = document.createElement('canvas');
  canvas.width = width;
  canvas.height = rows.length;
  const context = canvas.getContext('2d'), image = context.createImageData(width, rows.length);
  const colours = coloursOf(heat, colour).map((parts) => new Uint8ClampedArray([...parts, 255]));
  const gone = goneColours(heat);
  rows.forEach((row, down) => {
    const cells = colour === 'phase' ? row.phases : row.levels;
    for (let at = 0; at < width; at++) {
      const told = cells[at] === NOTHING ? undefined : colours[cells[at]];
      image.data.set(told || gone.get(row.phases[at]) || colours[NOTHING], 4 * (down * width + at));
    }
  });
  context.putImageData(image, 0, 0);
  return canvas;
}

function goneColours(heat) {
  // By its number among the phases: what a dead rank's cells look like, also where nobody works.
  return new Map(GONE.filter((name) => heat.names.includes(name)).map((name) => [heat.names.indexOf(name) + 1, new Uint8ClampedArray([...phaseColour(name), 255])]));
}

const isSeen = (heat, number) => heat.rows.some((row) => row.phases.includes(number));

function drawLoud(context, rows, size) {
  // Where a row is a pixel or two, what is far above the median would be overlooked: it is taller.
  if (size.high >= THIN) return;
  rows.forEach((row, down) => row.levels.forEach((level, at) => {
    if (level < LOUD) return;
    context.fillStyle = css(ratioColour(level));
    context.fillRect(GUTTER + at * size.wide, down * size.high - 1, size.wide, THIN);
  }));
}

function loudest(rows, row, column, size) {
  // The row that is meant by pointing here: one that is drawn taller, if there is one.
  if (size.high >= THIN || !rows[row]) return row;
  let meant = row;
  for (let near = Math.max(0, row - 2); near <= Math.min(rows.length - 1, row + 2); near++) {
    const level = rows[near].levels[column];
    if (level >= LOUD && level > rows[meant].levels[column]) meant = near;
  }
  return meant;
}

function coloursOf(heat, colour) {
  if (colour === 'phase') return [phaseColour(undefined), ...heat.names.map(phaseColour)];
  return Array.from({length: LEVELS + 1}, (_, level) => ratioColour(level));
}

function showLegend(heat, colour) {
  const seen = heat.names.filter((name, at) => isSeen(heat, at + 1) && (colour === 'phase' || GONE.includes(name)));
  redraw('heat-legend', [seen, colour, dark.matches], () => {
    const names = seen.map((name) => legendLine(css(phaseColour(name)), name));
    if (colour === 'phase') return names;
    const stops = [];
    for (let level = 1; level <= 55; level += 6) stops.push(css(ratioColour(level)));
    const scale = legendLine(`linear-gradient(to right, ${stops.join(',')})`, '0.7 to 2 times the median of its role');
    scale.firstChild.className = 'scale';
    return [scale, legendLine(css(ratioColour(NOTHING)), 'nothing told'), ...names];
  });
}

function legendLine(background, text) {
  const line = element('li'), swatch = element('span');
  swatch.style.background = background;
  line.append(swatch, text);
  return line;
}
