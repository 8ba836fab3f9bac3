'use strict';
// Elements of the page. What a job says is text, never markup: nothing here takes HTML.

const $ = (id) => document.getElementById(id);

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function say(id, text) {
  // Only what has changed: a screen reader reads a live region again whenever it is written.
  const node = $(id);
  if (node.textContent !== text) node.textContent = text;
}

const drawn = new Map();

function redraw(id, told, draw) {
  // Draws the children of an element anew where they differ, so that what is open stays open.
  const text = JSON.stringify(told);
  if (drawn.get(id) === text) return;
  drawn.set(id, text);
  $(id).replaceChildren(...draw(told));
}

function table(id, headings, rows, none) {
  redraw(id, [headings, rows], () => {
    if (!rows.length) {
      const body = element('tbody');
      body.append(element('tr'));
      body.firstChild.append(element('td', none, 'none'));
      return [body];
    }
    return [heading(headings), bodyOf(headings, rows)];
  });
}

function heading(headings) {
  const head = element('thead'), row = element('tr');
  for (const name of headings) {
    const cell = element('th', name.replace(/^#/, ''), name.startsWith('#') ? 'number' : '');
    cell.scope = 'col';
    row.append(cell);
  }
  head.append(row);
  return head;
}

function bodyOf(headings, rows) {
  const body = element('tbody');
  for (const row of rows) {
    const line = element('tr');
    row.forEach((value, at) => line.append(cellOf(value, headings[at].startsWith('#'))));
    body.append(line);
  }
  return body;
}

function cellOf(value, isNumber) {
  // A value is a text, or {text, bad, colour}.
  const told = typeof value === 'object' && value !== null ? value : {text: value};
  const cell = element('td', undefined, isNumber ? 'number' : '');
  if (told.colour) {
    const swatch = element('span', '', 'swatch');
    swatch.style.background = told.colour;
    cell.append(swatch);
  }
  cell.append(told.bad ? element('span', told.text, 'bad') : String(told.text ?? ''));
  return cell;
}
