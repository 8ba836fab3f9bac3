// Who is slow, what was found, the nodes and, when they are asked for, all ranks.

const SILENT_S = 5;  // A sidecar's heart beats three times a second.

function showTables(view) {
  showSlow(view.slow);
  showFindings(view);
  showNodes(view);
  if ($('ranks').open) showRanks(view);
}

function showSlow(slow) {
  const rows = slow.map((one) => [
    one.rank >= 0 ? `rank ${one.rank}` : 'the node', one.node, `+${one.percent.toFixed(1)} %`, count(one.since_step),
    `${one.cause}: ${one.why}`, `${(one.confidence * 100).toFixed(0)} %`, one.advice,
    one.gain >= 0.005 ? `${percent(one.gain)} faster without` : '',
  ]);
  table('slow', ['who', 'node', '#slower', '#since step', 'cause', '#sure', 'what to do', 'the job would be'], rows, 'nobody is slow');
}

function showFindings(view) {
  const rows = view.findings.map((one) => [
    {text: one.kind.replace(/_/g, ' '), bad: one.acts}, one.node, one.rank === null ? '' : one.rank, clock(one.since_unix_s), one.words,
  ]);
  table('findings', ['what', 'node', '#rank', 'since', 'why'], rows, 'nothing');
}

function showNodes(view) {
  const rows = view.nodes.map((one) => {
    const silent = one.heartbeat_unix_s === null ? null : view.now_unix_s - one.heartbeat_unix_s;
    const isSilent = silent !== null && silent > (view.store_up ? SILENT_S : 0);
    const leads = view.store_up ? ' (leads)' : ' (led)';
    return [
      one.node + (one.is_leader ? leads : ''), {text: one.state, bad: ['lost', 'unattended', 'silent'].includes(one.state)},
      {text: silent === null ? '–' : isSilent ? `${span(silent)} ago` : 'now', bad: isSilent}, ranges(one.ranks), one.findings || '',
    ];
  });
  table('nodes', ['node', 'state', 'heard', 'ranks', '#findings'], rows, 'no node has reported yet');
}

function ranges(ranks) {
  // 0-7, 16-23
  const told = [];
  for (const rank of ranks || []) {
    const last = told[told.length - 1];
    if (last && last[1] === rank - 1) last[1] = rank; else told.push([rank, rank]);
  }
  return told.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(', ');
}

function phaseOf(rank) {
  // What is not heard any more may be long past.
  if (!rank.alive) return {text: rank.silence === 'lost' ? 'lost' : 'gone', bad: true};
  return rank.silence ? {text: `${rank.phase}, as last heard`, bad: true} : {text: rank.phase, bad: false};
}

function ageOf(rank, now) {
  return rank.silence ? `${span(now - rank.heard_unix_s)} ago` : span(now - rank.phase_since_unix_s);
}

function showRanks(view) {
  const rows = view.ranks.map((one) => {
    const gpu = one.gpu || {};
    return [
      one.rank, one.node, count(one.step), phaseOf(one), ageOf(one, view.now_unix_s), span(one.step_s), span(one.own_s), span(one.wait_s),
      one.slowdown === null || one.slowdown === undefined ? '' : {text: `+${percent(one.slowdown)} ${one.cause}`, bad: true},
      gpu.busy === null || gpu.busy === undefined ? '' : percent(gpu.busy), gpu.power_w ? `${gpu.power_w.toFixed(0)} W` : '',
      gpu.temperature_c ? `${gpu.temperature_c.toFixed(0)} °C` : '', gpu.memory_used_bytes ? large(gpu.memory_used_bytes, 'B') : '',
    ];
  });
  table('rank-table', ['#rank', 'node', '#step', 'phase', '#for', '#step time', '#own work', '#waiting', 'slow', '#GPU busy', '#power', '#heat', '#memory'], rows, 'no rank yet');
}
