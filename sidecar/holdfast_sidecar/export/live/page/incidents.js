// Incidents on a line of time, and each with its story.

const timeline = {marks: []};

function showIncidents(view) {
  redraw('incidents', view.incidents, (incidents) => {
    const open = new Set([...document.querySelectorAll('#incidents details[open]')].map((one) => one.dataset.id));
    if (!incidents.length) return [element('p', 'no incident so far', 'none')];
    return incidents.map((incident) => told(incident, open.has(incident.identifier)));
  });
  drawTimeline(view);
}

function told(incident, isOpen) {
  const details = element('details', undefined, incident.is_over ? '' : 'open'), lines = element('ol');
  details.dataset.id = incident.identifier;
  details.open = isOpen;
  details.append(element('summary', `${day(incident.detected_unix_s)}  ${summary(incident)}`));
  details.append(element('p', incident.title));
  for (const line of incident.story || []) lines.append(element('li', line));
  details.append(lines, element('p', `more: holdfast explain ${incident.identifier}`, 'none'));
  return details;
}

function summary(incident) {
  const ranks = incident.ranks || [], who = ranks.length ? `rank${ranks.length > 1 ? 's' : ''} ${ranks.slice(0, 8).join(', ')}` : '';
  const where = incident.node ? `${who ? ' on ' : ''}${incident.node}` : '';
  const cost = incident.lost_s === null || incident.lost_s === undefined ? (incident.is_over ? '' : ', not over yet') : `, ${span(incident.lost_s)} without progress`;
  return `${incident.cause.replace(/_/g, ' ')}${who || where ? ` of ${who}${where}` : ''}${cost}`;
}

function drawTimeline(view) {
  const canvas = $('timeline'), {incidents} = view;
  canvas.hidden = !incidents.length;
  timeline.marks = [];
  if (!incidents.length) return;
  const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = 46;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext('2d'), now = view.now_unix_s;
  context.scale(ratio, ratio);
  const begin = Math.min(now - 600, ...incidents.map((one) => one.since_unix_s || one.detected_unix_s)), across = (unix) => (unix - begin) / (now - begin) * (width - 8) + 2;
  context.fillStyle = cssOf('--line');
  context.fillRect(0, 18, width, 2);
  for (const incident of [...incidents].reverse()) {
    const from = across(incident.since_unix_s || incident.detected_unix_s), until = across(incident.recovered_unix_s || (incident.is_over ? incident.detected_unix_s : now));
    const mark = {left: from, right: Math.max(from + 5, until), id: incident.identifier};
    context.fillStyle = cssOf(incident.is_over ? '--yellow' : '--red');
    context.fillRect(mark.left, 8, mark.right - mark.left, 22);
    timeline.marks.push(mark);
  }
  context.fillStyle = cssOf('--quiet');
  context.font = '11px system-ui, sans-serif';
  context.textBaseline = 'top';
  context.fillText(day(begin), 2, 34);
  context.textAlign = 'right';
  context.fillText('now', width - 4, 34);
}

function markAt(event) {
  // The narrowest: a long one may lie behind many.
  const left = event.clientX - $('timeline').getBoundingClientRect().left;
  const hit = timeline.marks.filter((mark) => left >= mark.left - 3 && left <= mark.right + 3);
  return hit.sort((one, other) => (one.right - one.left) - (other.right - other.left))[0];
}

function openIncident(event) {
  const mark = markAt(event);
  if (!mark) return;
  const details = [...document.querySelectorAll('#incidents details')].find((one) => one.dataset.id === mark.id);
  details.open = true;
  details.querySelector('summary').focus();
  details.scrollIntoView({block: 'nearest'});
}

function watchTimeline() {
  $('timeline').addEventListener('click', openIncident);
  $('timeline').addEventListener('pointermove', (event) => { $('timeline').style.cursor = markAt(event) ? 'pointer' : ''; });
}
