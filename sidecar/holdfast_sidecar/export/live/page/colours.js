// Colours that people of any colour vision tell apart: blue is quick, orange is slow, and what is
// slower differs more from the ground in brightness too. Phases: the palette of Okabe and Ito.

const dark = matchMedia('(prefers-color-scheme: dark)');

const SCALES = {
  light: {nothing: [255, 255, 255], usual: [226, 232, 238], slow: [[245, 170, 60], [203, 75, 0], [96, 20, 0]], quick: [[120, 180, 225], [0, 92, 160]]},
  dark: {nothing: [18, 22, 26], usual: [44, 53, 62], slow: [[176, 92, 10], [245, 150, 40], [255, 236, 190]], quick: [[40, 90, 140], [95, 175, 235]]},
};

function between(one, other, share) {
  return one.map((part, at) => Math.round(part + (other[at] - part) * share));
}

function along(stops, share) {
  const at = Math.min(share, 1) * (stops.length - 1), first = Math.min(Math.floor(at), stops.length - 2);
  return between(stops[first], stops[first + 1], at - first);
}

function ratioColour(level) {
  const scale = dark.matches ? SCALES.dark : SCALES.light;
  if (level === NOTHING) return scale.nothing;
  // A tenth more than the median is much for one rank, and twice is as bad as it gets.
  const turns = Math.log2(ratioOf(level)), share = Math.min(1, Math.abs(turns));
  return along([scale.usual, ...(turns > 0 ? scale.slow : scale.quick)], share);
}

const PHASE_COLOURS = {
  forward: [86, 180, 233], backward: [0, 114, 178], optimizer: [0, 158, 115], data: [230, 159, 0],
  transferring: [245, 200, 110], communicating: [240, 228, 66], saving: [213, 94, 0],
  evaluating: [204, 121, 167], compiling: [148, 90, 130], restoring: [120, 130, 140],
  starting: [160, 168, 176], idle: [200, 205, 210], finished: [90, 98, 106],
  gone: [190, 70, 160], lost: [125, 60, 190],
};

function phaseColour(name) {
  const scale = dark.matches ? SCALES.dark : SCALES.light;
  return name === undefined ? scale.nothing : PHASE_COLOURS[name] || [128, 128, 128];
}

const GONE = ['gone', 'lost'];  // No phases: of these ranks there is no work, whatever colour is chosen.

const CATEGORY_COLOURS = {
  productive: [0, 158, 115], pending: [130, 200, 170], data_wait: [230, 159, 0], saving: [213, 94, 0], evaluating: [204, 121, 167],
  compiling: [148, 90, 130], straggler: [150, 60, 0], hang_undetected: [170, 30, 30], draining: [240, 228, 66],
  restart: [0, 114, 178], restore: [86, 180, 233], init: [120, 150, 180], setup: [150, 170, 190],
  warmup: [110, 200, 170], queued: [160, 168, 176], paused: [130, 130, 160], unobserved: [100, 105, 112], other: [60, 64, 70],
};

const css = (colour) => `rgb(${colour.join(',')})`;

const cssOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
