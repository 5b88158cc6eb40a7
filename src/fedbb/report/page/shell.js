"use strict";

// What every page has: elements made of text, theme, tooltip, tables that sort and filter.
const shell = (() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);

  const fill = (node, attributes, children) => {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
    return node;
  };
  // Children that are strings become text nodes: nothing from the data is ever read as markup.
  const make = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const draw = (tag, attributes, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

  const KEY = "fedbb-theme";
  const remembered = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null;
    }
  };
  const remember = (theme) => {
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      /* A browser may forbid it; nothing is lost. */
    }
  };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : system.matches;
  };
  const startTheme = () => {
    const button = byId("theme");
    const label = () => {
      button.textContent = isDark() ? "Light" : "Dark";
    };
    const chosen = remembered();
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
    button.hidden = false;
    button.addEventListener("click", () => {
      document.documentElement.dataset.theme = isDark() ? "light" : "dark";
      remember(document.documentElement.dataset.theme);
      label();
    });
    system.addEventListener("change", label);
    label();
  };

  const tip = byId("tip");
  const hideTip = () => {
    tip.hidden = true;
  };
  const showTip = (lines, x, y) => {
    tip.replaceChildren(...lines.map((line) => make("div", {}, line)));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, x + 14), innerWidth - width - 8);
    const above = y - height - 14;
    tip.style.transform = `translate(${left}px, ${above < 8 ? y + 18 : above}px)`;
  };

  // A cell is a text, or a pair [text, number to sort by or null].
  const LONG = /\S{25}/u;
  const SHORT = 20;
  const tied = (text) => text.replaceAll(" ± ", "\u00a0±\u00a0").replaceAll(" (", "\u00a0(");
  const textOf = (cell) => (Array.isArray(cell) ? cell[0] : cell);
  const collator = new Intl.Collator("en", { numeric: true });
  const before = (one, other, sign) => {
    const [a, b] = [one, other].map((cell) => (Array.isArray(cell) ? cell[1] : cell));
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === "number" ? a - b : collator.compare(a, b));
  };

  const table = ({ caption, head, rows, differs }) => {
    const numeric = head.map(
      (_, column) => rows.length > 0 && rows.every((row) => Array.isArray(row[column])),
    );
    const look = (column, text) => ({
      class:
        [
          numeric[column] ? "number" : "",
          text === "–" ? "blank" : "",
          LONG.test(text) ? "long" : [...text].length <= SHORT ? "short" : "",
        ]
          .filter(Boolean)
          .join(" ") || null,
    });
    const body = make("tbody", { role: "rowgroup" });
    const lines = rows.map((row) => {
      const words = row.map(textOf).join(" ").toLowerCase();
      return {
        row,
        words,
        node: make(
          "tr",
          { role: "row" },
          row.map((cell, column) => {
            const text = textOf(cell);
            const [tag, more] =
              column === 0
                ? ["th", { scope: "row", role: "rowheader" }]
                : ["td", { role: "cell", "data-label": head[column] }];
            return make(tag, { ...more, ...look(column, text) }, numeric[column] ? tied(text) : text);
          }),
        ),
      };
    });
    lines.forEach(({ node }, index) => node.classList.toggle("differs", Boolean(differs?.[index])));
    body.append(...lines.map(({ node }) => node));
    const heads = head.map((name, column) =>
      make(
        "th",
        { scope: "col", role: "columnheader", ...look(column, name) },
        make("button", { type: "button", onclick: () => sort(column) }, name),
      ),
    );
    const sort = (column) => {
      const now = heads[column].getAttribute("aria-sort");
      const first = numeric[column] ? "descending" : "ascending";
      const other = numeric[column] ? "ascending" : "descending";
      const direction = now === first ? other : first;
      heads.forEach((node) => node.removeAttribute("aria-sort"));
      heads[column].setAttribute("aria-sort", direction);
      const sign = direction === "ascending" ? 1 : -1;
      lines.sort((one, two) => before(one.row[column], two.row[column], sign));
      body.append(...lines.map(({ node }) => node));
    };
    const node = make(
      "div",
      { class: "table" },
      make(
        "table",
        { class: head.length > 2 ? "cards" : "pairs", role: "table" },
        caption ? make("caption", {}, caption) : null,
        make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, heads)),
        body,
      ),
    );
    const filter = (keep) => {
      let shown = 0;
      for (const line of lines) {
        line.node.hidden = !keep(line.row, line.words);
        shown += !line.node.hidden;
      }
      return shown;
    };
    return { node, filter, size: rows.length, column: (name) => head.indexOf(name) };
  };

  // Draw when a place comes near the window, and whatever is left before printing.
  const waiting = new Map();
  const drawNow = (place) => {
    const job = waiting.get(place);
    waiting.delete(place);
    watcher.unobserve(place);
    job?.();
  };
  const watcher = new IntersectionObserver(
    (entries) => {
      entries.filter((entry) => entry.isIntersecting).forEach((entry) => drawNow(entry.target));
    },
    { rootMargin: "400px" },
  );
  const later = (place, job) => {
    waiting.set(place, job);
    watcher.observe(place);
  };
  addEventListener("beforeprint", () => {
    while (waiting.size > 0) [...waiting.keys()].forEach(drawNow);
  });
  addEventListener("scroll", hideTip, { passive: true });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") hideTip();
  });

  startTheme();
  byId("print").hidden = false;
  byId("print").addEventListener("click", () => print());
  return { data: () => data, byId, make, draw, table, later, showTip, hideTip };
})();
