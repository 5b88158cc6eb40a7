// Small figures as SVG: lines, dots in rows, points, and a map of cells, each with values to read.
const charts = (() => {
  const { make, draw, later, showTip, hideTip } = shell;
  const HUES = 8;
  const MINUS = "−";

  const number = (value, digits = 1) =>
    value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", MINUS);
  const signed = (value, digits = 1) =>
    value === null ? "–" : (value > 0 ? "+" : "") + number(value, digits);
  const spread = (mean, deviation, digits = 2, form = number) =>
    form(mean, digits) + (deviation === null ? "" : ` ± ${number(deviation, digits)}`);

  const pen = document.createElement("canvas").getContext("2d");
  const widthOf = (text) => {
    pen.font = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
    return pen.measureText(text).width;
  };
  const fit = (text, room) => {
    if (widthOf(text) <= room) return text;
    const letters = [...text];
    let [low, high] = [0, letters.length];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (widthOf(letters.slice(0, middle).join("") + "…") <= room) low = middle;
      else high = middle - 1;
    }
    return letters.slice(0, low).join("") + "…";
  };

  const ticks = (low, high, number) => {
    const raw = (high - low) / Math.max(1, number) || 1;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.999);
    const first = Math.ceil(low / step - 1e-9);
    const last = Math.floor(high / step + 1e-9);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    return Array.from({ length: last - first + 1 }, (_, index) => {
      const value = (first + index) * step;
      return { value, text: value.toFixed(digits).replace("-", MINUS) };
    });
  };
  const range = (values, margin = 0.06) => {
    const found = values.filter((value) => Number.isFinite(value));
    if (found.length === 0) return [0, 1];
    const [low, high] = [Math.min(...found), Math.max(...found)];
    const pad = (high - low || Math.abs(high) || 1) * margin;
    return [low - pad, high + pad];
  };
  const scale =
    ([low, high], from, to) =>
    (value) =>
      from + ((value - low) / (high - low)) * (to - from);

  const every = (room) => Math.max(1, Math.ceil(14 / room));
  const words = (x, y, text, attributes) => draw("text", { x, y, ...attributes }, text);
  const line = (x1, y1, x2, y2, kind) => draw("line", { x1, y1, x2, y2, class: kind });
  const hue = (index) => `s${index % HUES}`;
  const dash = (index) => `dash-${Math.floor(index / HUES) % 3}`;
  const canvas = (width, height, label, ...children) =>
    draw(
      "svg",
      {
        viewBox: `0 0 ${width} ${height}`,
        role: "img",
        tabindex: 0,
        "aria-label": label,
      },
      ...children,
    );

  // Spots are places {x, y, lines}; the nearest one speaks, and arrow keys walk from one to the next.
  const listen = (svg, spots, { alongX = false, alongY = false, mark } = {}) => {
    if (spots.length === 0) return svg;
    let chosen = -1;
    const say = (index, x, y) => {
      chosen = index;
      mark?.(spots[index]);
      showTip(spots[index].lines, x, y);
    };
    const hush = () => {
      mark?.(null);
      hideTip();
    };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const ratio = svg.viewBox.baseVal.width / box.width;
      const [x, y] = [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio];
      const far = (spot) => (alongX ? 0 : (spot.y - y) ** 2) + (alongY ? 0 : (spot.x - x) ** 2);
      let best = 0;
      spots.forEach((spot, index) => {
        if (far(spot) < far(spots[best])) best = index;
      });
      say(best, event.clientX, event.clientY);
    });
    svg.addEventListener("pointerleave", hush);
    svg.addEventListener("blur", hush);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const index = (chosen + step + spots.length) % spots.length;
      const box = svg.getBoundingClientRect();
      const ratio = box.width / svg.viewBox.baseVal.width;
      say(index, box.left + spots[index].x * ratio, box.top + spots[index].y * ratio);
    });
    return svg;
  };

  // On paper two figures share a line; drawn for that width, their letters keep their size.
  const ON_PAPER = 330;
  const painters = [];
  let printing = false;
  const turn = (onPaper) => {
    printing = onPaper;
    painters.forEach((paint) => (onPaper ? paint(ON_PAPER) : paint()));
  };
  addEventListener("beforeprint", () => turn(true), { capture: true });
  addEventListener("afterprint", () => turn(false));

  // A figure: title, legend of buttons, plot drawn to the width it has, caption.
  const figure = ({ title, caption, series = [], controls = [], wide = false, plot }) => {
    const place = make("div", { class: "plot" });
    const hidden = new Set(series.filter((one) => one.index >= HUES).map((one) => one.index));
    let width = 0;
    const paint = (room = width) => {
      if (room > 0)
        place.replaceChildren(
          plot(
            room,
            series.filter((one) => !hidden.has(one.index)),
          ),
        );
    };
    const key = (one) =>
      make(
        "li",
        {},
        make(
          "button",
          {
            type: "button",
            "aria-pressed": String(!hidden.has(one.index)),
            onclick: (event) => {
              if (!hidden.delete(one.index)) hidden.add(one.index);
              event.currentTarget.setAttribute("aria-pressed", String(!hidden.has(one.index)));
              paint();
            },
          },
          draw(
            "svg",
            { width: 22, height: 12, "aria-hidden": "true", class: hue(one.index) },
            draw("path", { d: "M0 6H22", stroke: "currentColor", "stroke-width": 2, class: dash(one.index) }),
            draw("circle", { cx: 11, cy: 6, r: 3.5, fill: "currentColor" }),
          ),
          one.name,
        ),
      );
    later(place, () => {
      new ResizeObserver(([entry]) => {
        const now = Math.round(entry.contentRect.width);
        if (now !== width && now > 0 && !printing) {
          width = now;
          paint();
        }
      }).observe(place);
      width = Math.round(place.clientWidth) || 640;
      paint(printing ? ON_PAPER : width);
      painters.push(paint);
    });
    const legend = series.length > 0 ? make("ul", { class: "legend" }, series.map(key)) : null;
    const node = make(
      "figure",
      { class: wide ? "wide" : null },
      make("h3", {}, title),
      controls.length > 0 ? make("div", { class: "filters" }, controls) : null,
      legend,
      place,
      make("figcaption", {}, caption),
    );
    return { node, paint };
  };

  const choice = (label, options, change) =>
    make(
      "label",
      {},
      label,
      make(
        "select",
        {
          onchange: (event) => change(event.target.selectedIndex),
        },
        options.map((name) => make("option", {}, name)),
      ),
    );

  const path = (points) =>
    points.reduce(
      (text, point, index) =>
        point === null
          ? text
          : `${text}${index === 0 || points[index - 1] === null ? "M" : "L"}${point[0].toFixed(1)} ${point[1].toFixed(1)}`,
      "",
    );

  // Horizontal lines of a scale at the left; returns where values lie.
  const upright = (values, width, height, { top = 8, bottom = 34, across }) => {
    const [low, high] = range(values);
    const marks = ticks(low, high, Math.max(4, height / 40));
    const left = 12 + Math.max(...marks.map((mark) => widthOf(mark.text)));
    const y = scale([low, high], height - bottom, top);
    const nodes = marks.flatMap((mark) => [
      line(left, y(mark.value), width - 8, y(mark.value), "grid"),
      words(left - 6, y(mark.value) + 4, mark.text, { "text-anchor": "end" }),
    ]);
    nodes.push(words(width - 8, height - 4, across, { "text-anchor": "end" }));
    return { left, right: width - 8, y, nodes };
  };

  // series: {name, index, mean: [], deviation: []} over steps 1, 2, 3 …
  const lines = (width, series, { label, across = "round" }) => {
    const height = Math.max(220, Math.min(340, width * 0.55));
    const steps = Math.max(1, ...series.map((one) => one.mean.length));
    const ends = series.flatMap(({ mean, deviation }) =>
      mean.flatMap((value, at) =>
        value === null ? [] : [value - (deviation[at] ?? 0), value + (deviation[at] ?? 0)],
      ),
    );
    const frame = upright(ends, width, height, { across });
    const x = scale([1, Math.max(2, steps)], frame.left + 6, frame.right - 6);
    const rounds = ticks(1, steps, Math.min(steps - 1, width / 70)).filter((mark) =>
      Number.isInteger(mark.value),
    );
    const foot = rounds.map((mark) =>
      words(x(mark.value), height - 20, mark.text, { "text-anchor": "middle" }),
    );
    const shapes = series.map(({ index, mean, deviation }) => {
      const at = (side) =>
        mean.map((value, step) =>
          value === null ? null : [x(step + 1), frame.y(value + side * (deviation[step] ?? 0))],
        );
      const whole = at(1).filter(Boolean).concat(at(-1).filter(Boolean).reverse());
      return draw(
        "g",
        { class: hue(index) },
        draw("path", { class: "band", d: whole.length > 2 ? path(whole) + "Z" : "" }),
        draw("path", { class: `line ${dash(index)}`, d: path(at(0)) }),
        steps === 1 ? draw("circle", { class: "dot", r: 4, cx: x(1), cy: frame.y(mean[0] ?? 0) }) : null,
      );
    });
    const cursor = line(0, 8, 0, height - 34, "cursor");
    cursor.setAttribute("visibility", "hidden");
    const spots = Array.from({ length: series.length ? steps : 0 }, (_, step) => ({
      x: x(step + 1),
      y: height / 2,
      lines: [
        `${across} ${step + 1}`,
        ...series.map((one) => `${one.name}: ${spread(one.mean[step] ?? null, one.deviation[step] ?? null)}`),
      ],
    }));
    const svg = canvas(width, height, label, frame.nodes, foot, shapes, cursor);
    const mark = (spot) => {
      cursor.setAttribute("visibility", spot ? "visible" : "hidden");
      if (spot) {
        cursor.setAttribute("x1", spot.x);
        cursor.setAttribute("x2", spot.x);
      }
    };
    return listen(svg, spots, { alongX: true, mark });
  };

  // rows: {name, note}; series: {name, index, values: [], deviation: []}; one line of dots a row.
  const dots = (
    width,
    rows,
    series,
    { label, across, zero = false, joined = false, form = number, digits = 1 },
  ) => {
    const room = Math.min(width * 0.42, 12 + Math.max(...rows.map((row) => widthOf(row.name)), 24));
    const spacing = rows.length > 40 ? 9 : Math.max(20, Math.min(34, 10 + 5 * series.length * !joined));
    const height = 10 + rows.length * spacing + 40;
    const ends = series.flatMap(({ values, deviation = [] }) =>
      values.flatMap((value, at) =>
        value === null ? [] : [value - (deviation[at] ?? 0), value + (deviation[at] ?? 0)],
      ),
    );
    const span = range(zero ? [...ends, 0] : ends);
    const x = scale(span, room + 6, width - 12);
    const nodes = ticks(...span, Math.max(2, width / 110)).flatMap((mark) => [
      line(x(mark.value), 6, x(mark.value), height - 36, zero && mark.value === 0 ? "axis" : "grid"),
      words(x(mark.value), height - 22, mark.text, { "text-anchor": "middle" }),
    ]);
    nodes.push(words(width - 8, height - 4, fit(across, width - 16), { "text-anchor": "end" }));
    const spots = [];
    rows.forEach((row, at) => {
      const middle = 10 + (at + 0.5) * spacing;
      if (at > 0 && !joined && spacing >= 18)
        nodes.push(line(room + 6, 10 + at * spacing, width - 12, 10 + at * spacing, "grid"));
      if (at % every(spacing) === 0)
        nodes.push(
          draw(
            "g",
            {},
            draw("title", {}, row.name),
            words(room - 4, middle + 4, fit(row.name, room - 8), { "text-anchor": "end", class: "name" }),
          ),
        );
      const found = series.filter((one) => one.values[at] !== null);
      if (joined && found.length === 2)
        nodes.push(line(x(found[0].values[at]), middle, x(found[1].values[at]), middle, "axis"));
      found.forEach((one) => {
        const order = series.indexOf(one);
        const y = joined
          ? middle
          : middle + (order - (series.length - 1) / 2) * Math.min(6, (spacing - 6) / series.length);
        const [value, margin] = [one.values[at], one.deviation?.[at] ?? null];
        nodes.push(
          draw(
            "g",
            { class: hue(one.index) },
            margin === null
              ? null
              : draw("path", { class: "thin", d: `M${x(value - margin)} ${y}H${x(value + margin)}` }),
            draw("circle", {
              class: joined && order === 0 ? "ring" : "dot",
              r: spacing < 18 ? 3 : 4,
              cx: x(value),
              cy: y,
            }),
          ),
        );
      });
      spots.push({
        x: room + (width - room) / 2,
        y: middle,
        lines: [
          row.name,
          ...(row.note ? [row.note] : []),
          ...series.map(
            (one) => `${one.name}: ${spread(one.values[at], one.deviation?.[at] ?? null, digits, form)}`,
          ),
        ],
      });
    });
    return listen(canvas(width, height, label, nodes), spots, { alongY: true });
  };

  // points: {name, index, x, y, deviation}
  const scatter = (width, points, { label, across, above }) => {
    const height = Math.max(240, Math.min(340, width * 0.55));
    const ends = points.flatMap(({ y, deviation }) => [y - (deviation ?? 0), y + (deviation ?? 0)]);
    const frame = upright(ends, width, height, { across, top: 26 });
    const span = range([0, ...points.map((point) => point.x)], 0.04);
    span[0] = 0;
    const x = scale(span, frame.left + 4, frame.right - 8);
    const foot = ticks(...span, Math.max(2, width / 100)).map((mark) =>
      words(x(mark.value), height - 20, mark.text, { "text-anchor": "middle" }),
    );
    const shapes = points.map((point) =>
      draw(
        "g",
        { class: hue(point.index) },
        point.deviation === null
          ? null
          : draw("path", {
              class: "thin",
              d: `M${x(point.x)} ${frame.y(point.y - point.deviation)}V${frame.y(point.y + point.deviation)}`,
            }),
        draw("circle", { class: "dot", r: 5, cx: x(point.x), cy: frame.y(point.y) }),
      ),
    );
    const spots = points.map((point) => ({ x: x(point.x), y: frame.y(point.y), lines: point.lines }));
    return listen(canvas(width, height, label, words(8, 12, above, {}), frame.nodes, foot, shapes), spots);
  };

  // rows: {name}; series: {name, index, values}; the values of a row are stacked, their sum is written.
  const bars = (width, rows, series, { label, across, most, form }) => {
    const left = Math.min(width * 0.42, 14 + Math.max(...rows.map((row) => widthOf(row.name)), 20));
    const spacing = rows.length > 30 ? 14 : 21;
    const height = rows.length * spacing + 30;
    const length = (value) => (value / most) * Math.max(20, width - left - 8 - widthOf(form(most)) - 6);
    const spots = [];
    const nodes = rows.flatMap((row, at) => {
      const y = 4 + at * spacing;
      let start = left;
      const stack = series.map((one) => {
        const node = draw("rect", {
          class: `bar ${hue(one.index)}`,
          x: start,
          y: y + 2,
          width: length(one.values[at]),
          height: spacing - 5,
        });
        start += length(one.values[at]);
        return node;
      });
      const total = series.reduce((sum, one) => sum + one.values[at], 0);
      spots.push({
        x: left,
        y: y + spacing / 2,
        lines: [row.name, ...series.map((one) => `${one.name}: ${form(one.values[at])}`)],
      });
      return draw(
        "g",
        {},
        draw("title", {}, row.name),
        words(left - 6, y + spacing / 2 + 4, fit(row.name, left - 10), {
          "text-anchor": "end",
          class: "name",
        }),
        stack,
        words(start + 5, y + spacing / 2 + 4, form(total), {}),
      );
    });
    nodes.push(words(width - 8, height - 4, fit(across, width - 16), { "text-anchor": "end" }));
    return listen(canvas(width, height, label, nodes), spots, { alongY: true });
  };

  // values[row][column]; darker holds more, by steps of the logarithm, so that few differ from none.
  const cells = (width, { rows, columns, values, label, across, unit }) => {
    const left = Math.min(width * 0.35, 14 + Math.max(...rows.map(widthOf), 20));
    const size = (width - left - 4) / columns.length;
    const tall = Math.max(rows.length > 40 ? 7 : 14, Math.min(26, size));
    const slanted = columns.some((name) => widthOf(name) > size - 4);
    const foot = slanted ? Math.min(140, 12 + Math.max(...columns.map(widthOf))) : 20;
    const bottom = rows.length * tall + 4;
    const height = bottom + foot + 18;
    const most = Math.max(1, ...values.flat());
    const STEPS = 7;
    const shade = (value) =>
      value <= 0 ? 0 : 1 + Math.floor(((STEPS - 1.001) * Math.log1p(value)) / Math.log1p(most));
    const shapes = Array.from({ length: STEPS + 1 }, () => "");
    values.forEach((row, at) =>
      row.forEach((value, column) => {
        shapes[shade(value)] +=
          `M${(left + column * size).toFixed(1)} ${(4 + at * tall).toFixed(1)}h${(size - 1).toFixed(1)}v${(tall - 1).toFixed(1)}h${(1 - size).toFixed(1)}z`;
      }),
    );
    const nodes = shapes.map((d, step) =>
      draw("path", {
        d,
        class: "cell s0",
        "fill-opacity": step === 0 ? 0.05 : 0.14 + 0.86 * (step / STEPS) ** 1.2,
      }),
    );
    rows.forEach((name, at) => {
      if (at % every(tall) === 0)
        nodes.push(
          words(left - 6, 4 + (at + 0.5) * tall + 4, fit(name, left - 10), {
            "text-anchor": "end",
            class: "name",
          }),
        );
    });
    columns.forEach((name, at) => {
      if (at % every(size) !== 0) return;
      const middle = left + (at + 0.5) * size;
      nodes.push(
        slanted
          ? words(0, 0, fit(name, foot - 8), {
              class: "name",
              "text-anchor": "end",
              transform: `translate(${middle + 4} ${bottom + 6}) rotate(-90)`,
            })
          : words(middle, bottom + 14, name, { class: "name", "text-anchor": "middle" }),
      );
    });
    nodes.push(words(width - 8, height - 4, across, { "text-anchor": "end" }));
    const counts = values.flatMap((row, at) =>
      row.map((value, column) => ({ value, at, column, text: value.toLocaleString("en") })),
    );
    if (tall >= 16 && counts.every(({ text }) => widthOf(text) <= size - 6))
      counts
        .filter(({ value }) => value > 0)
        .forEach(({ value, at, column, text }) =>
          nodes.push(
            words(left + (column + 0.5) * size - 0.5, 4 + (at + 0.5) * tall + 3.5, text, {
              "text-anchor": "middle",
              class: shade(value) > 4 ? "on-dark" : "name",
            }),
          ),
        );
    const spots = values.flatMap((row, at) =>
      row.map((value, column) => ({
        x: left + (column + 0.5) * size,
        y: 4 + (at + 0.5) * tall,
        lines: [`${rows[at]}, ${columns[column]}`, `${value.toLocaleString("en")} ${unit}`],
      })),
    );
    return listen(canvas(width, height, label, nodes), spots);
  };

  return { number, signed, spread, figure, choice, lines, dots, scatter, bars, cells };
})();
