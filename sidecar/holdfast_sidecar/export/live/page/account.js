// Where the run's wall-clock time went; absent until it is known.

const nameOf = (category) => Object.hasOwn(CATEGORY_WORDS, category) ? CATEGORY_WORDS[category] : category;

function showAccount(view) {
  const parts = Object.entries(view.account).filter(([, seconds]) => seconds > 0);
  parts.sort((one, other) => other[1] - one[1]);
  $('account-section').hidden = !parts.length;
  if (!parts.length) return;
  const total = parts.reduce((sum, [, seconds]) => sum + seconds, 0);
  redraw('account', parts, () => parts.map(([name, seconds]) => {
    const part = element('div');
    part.style.flexGrow = String(seconds / total);
    part.style.background = css(CATEGORY_COLOURS[name] || [128, 128, 128]);
    part.title = `${nameOf(name)}: ${span(seconds)}, ${percent(seconds / total)}`;
    return part;
  }));
  const rows = parts.map(([name, seconds]) => [
    {text: nameOf(name), colour: css(CATEGORY_COLOURS[name] || [128, 128, 128])}, span(seconds), percent(seconds / total),
  ]);
  if (view.lost_s) rows.push(['work that had to be done again', span(view.lost_s), percent(view.lost_s / total)]);
  table('account-table', ['category', '#time', '#share'], rows, '');
}
