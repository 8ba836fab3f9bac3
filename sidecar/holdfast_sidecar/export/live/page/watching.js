// Asks every two seconds, seldomer while nobody answers, and says how old is what is shown.

const EVERY_MS = 2000, SELDOM_MS = 30000, HIDDEN_MS = 15000, PATIENCE_MS = 10000, STALE_MS = 6000;

const watch = {view: null, heardAt: 0, movedAt: 0, delay: EVERY_MS, timer: 0, isAsking: false, token: sessionStorage.getItem('token') || ''};

async function ask() {
  if (watch.isAsking) return;
  watch.isAsking = true;
  clearTimeout(watch.timer);
  try {
    const headers = watch.token ? {Authorization: `Bearer ${watch.token}`} : {};
    const answer = await fetch('live.json', {headers, cache: 'no-store', signal: AbortSignal.timeout(PATIENCE_MS)});
    if (answer.status === 401) return wantToken();
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    hear(unpacked(await answer.json()));
  } catch (error) {
    watch.delay = Math.min(watch.delay * 2, SELDOM_MS);
  } finally {
    watch.isAsking = false;
    watch.timer = setTimeout(ask, document.hidden ? Math.max(HIDDEN_MS, watch.delay) : watch.delay);
    tellAge();
  }
}

function hear(view) {
  const now = Date.now();
  if (!watch.view || view.now_unix_s !== watch.view.now_unix_s) watch.movedAt = now;
  watch.view = view;
  watch.heardAt = now;
  watch.delay = EVERY_MS;
  $('ask').hidden = true;
  show(view);
  if (!performance.getEntriesByName('shown').length) performance.mark('shown');
}

function show(view) {
  showHead(view);
  showAccount(view);
  showIncidents(view);
  showHeat(view);
  showTables(view);
  showTeller(view);
}

function showTeller(view) {
  const teller = $('teller');
  const told = [view.node, view.is_leader, view.leader_node, view.leader_address, view.store_up];
  redraw('teller', told, () => {
    if (!view.node) return [];
    if (view.is_leader) return [`told by ${view.node}, which leads`];
    if (!view.store_up) return [`told by ${view.node}: who leads, and how the others are, is known again once Redis is back`];
    const parts = [`told by ${view.node}, which does not lead: time goes back only for its own ranks. `];
    if (!view.leader_node) return [...parts, 'Who leads is not known.'];
    const link = leaderLink(view);
    return [...parts, `${view.leader_node} leads`, ...(link ? [': ', link] : view.leader_address ? [`, its page is at ${view.leader_address} there`] : [])];
  });
  teller.hidden = false;
}

function leaderLink(view) {
  // A loopback address means something on that node alone, and a wildcard nowhere.
  const found = /^(https:\/\/)?(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+):(\d{1,5})$/.exec(view.leader_address || '');
  const isLoopback = (host) => /^(localhost|127\..*|\[::1\])$/.test(host);
  if (!found || /^(0\.0\.0\.0|\[::\])$/.test(found[2]) || (isLoopback(found[2]) && !isLoopback(location.hostname))) return null;
  const link = element('a', 'its page');
  link.href = `${found[1] ? 'https:' : 'http:'}//${found[2]}:${found[3]}/`;
  link.rel = 'noreferrer';
  return link;
}

function tellAge() {
  const now = Date.now(), silent = now - watch.heardAt, still = now - watch.movedAt;
  let words = '';
  if (!$('ask').hidden) words = '';
  else if (!watch.heardAt && silent > STALE_MS && watch.delay > EVERY_MS) words = 'this node\'s sidecar does not answer';
  else if (watch.heardAt && silent > STALE_MS) words = `not reachable for ${span(Math.round(silent / 1000))}: what is shown is as old`;
  else if (watch.heardAt && still > STALE_MS) words = `this sidecar has stood still for ${span(Math.round(still / 1000))}: what is shown is as old`;
  else if (watch.view && !watch.view.store_up) words = 'Redis is away: shown is what this node sees by itself, and what it last heard of the others';
  else if (watch.view && watch.view.version > VERSION) words = 'the sidecar is newer than this page: load it again';
  say('stale', words);
  $('stale').hidden = !words;
}

function wantToken() {
  watch.delay = SELDOM_MS;
  $('ask').hidden = false;
  say('headline', watch.token ? 'the sidecar does not take this token' : 'the sidecar wants its token');
}

function begin() {
  watchHeat();
  watchTimeline();
  $('ranks').addEventListener('toggle', () => { if (watch.view) showTables(watch.view); });
  $('ask').addEventListener('submit', (event) => {
    event.preventDefault();
    watch.token = $('token').value.trim();
    sessionStorage.setItem('token', watch.token);
    watch.delay = EVERY_MS;
    ask();
  });
  addEventListener('resize', () => { if (watch.view) drawTimeline(watch.view); });
  dark.addEventListener('change', () => { if (watch.view) show(watch.view); });
  document.addEventListener('visibilitychange', () => { if (!document.hidden) ask(); });
  setInterval(tellAge, 1000);
  ask();
}

begin();
