// The head: traffic light, what is wrong, the job's figures.

const LIGHTS = {green: 'all is well', yellow: 'worth a look', red: 'in trouble', grey: 'over, or nothing to judge yet'};

function showHead(view) {
  const light = $('light'), name = view.light in LIGHTS ? view.light : 'grey';
  light.className = `light ${name}`;
  light.setAttribute('aria-label', LIGHTS[name]);
  document.title = `${name === 'green' ? '' : '● '}${view.run} – Holdfast`;
  say('run', `job ${view.run}`);
  say('state', stateOf(view));
  say('headline', view.headline || LIGHTS[name]);
  redraw('warnings', view.warnings, (lines) => lines.map((line) => element('li', line)));
  redraw('facts', factsOf(view), (facts) => facts.map(([what, value]) => {
    const fact = element('div');
    fact.append(element('dt', what), element('dd', value));
    return fact;
  }));
}

function stateOf(view) {
  const attempt = view.attempt === null || view.attempt === undefined ? '' : `, attempt ${view.attempt}`;
  return `${view.state || 'not known'}${attempt}`;
}

function factsOf(view) {
  const saved = view.checkpoint, facts = [];
  const told = (what, value, text) => {
    if (value !== null && value !== undefined) facts.push([what, text]);
  };
  told('step', view.step, count(view.step));
  told('step time', view.step_s, span(view.step_s));
  told('tokens per second', view.tokens_per_s, large(view.tokens_per_s, ''));
  told('MFU', view.mfu, percent(view.mfu));
  told('goodput', view.goodput, percent(view.goodput));
  told('ranks', view.world_size || null, count(view.world_size));
  told('restarts', view.restarts, count(view.restarts));
  told('leader', view.leader_node || null, view.leader_node);
  told('saved', saved.durable_step, `step ${count(saved.durable_step)}, ${span(view.now_unix_s - saved.durable_unix_s)} ago`);
  told('in memory', saved.snapshot_step, `step ${count(saved.snapshot_step)}`);
  const share = saved.writing_share === null || saved.writing_share === undefined ? '' : ` (${percent(saved.writing_share)})`;
  told('saving', saved.writing_step, `step ${count(saved.writing_step)}${share}`);
  told('paused by', view.paused_by || null, view.paused_by);
  return facts;
}
