// What /live.json says, unpacked: tables become objects, the map's characters become levels.

const VERSION = 1, NOTHING = 0, LEVELS = 90, LOWEST = 0.7, STEP = 1.02;

// As in levels.py: from # on, but for the backslash, a character for nothing and for each level.
const SIGN_AT = new Uint8Array(128);
for (let code = 0x23, at = 0; code < 0x7f; code++) if (code !== 0x5c) SIGN_AT[code] = at++;

function levels(text, width) {
  const told = new Uint8Array(width);
  for (let at = 0; at < width && at < text.length; at++) told[at] = SIGN_AT[text.charCodeAt(at) & 127];
  return told;
}

const ratioOf = (level) => LOWEST * STEP ** (level - 1);

function records(told) {
  if (!told || !Array.isArray(told.of) || !Array.isArray(told.rows)) return [];
  return told.rows.map((row) => Object.fromEntries(told.of.map((name, at) => [name, row[at]])));
}

function unpacked(told) {
  const view = {...told};
  for (const name of ['ranks', 'nodes', 'incidents', 'findings', 'slow']) view[name] = records(told[name]);
  view.heat = unpackedHeat(told.heat || {});
  view.account = told.account || {};
  view.checkpoint = told.checkpoint || {};
  view.warnings = told.warnings || [];
  return view;
}

function unpackedHeat(heat) {
  const columns = heat.columns || [], rows = [];
  for (const [rank, text] of Object.entries(heat.rows || {})) {
    rows.push({
      rank: Number(rank),
      levels: levels(text, columns.length),
      phases: levels((heat.phases || {})[rank] || '', columns.length),
    });
  }
  rows.sort((one, other) => one.rank - other.rank);
  return {columns, rows, steps: heat.steps || [], names: heat.phase_names || [], perRow: heat.ranks_per_row || 1};
}
