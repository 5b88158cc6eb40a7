// The report on runs: verdicts, tables, figures and settings from fedbb.report.page.report.
(() => {
  const { byId, make, table, later } = shell;
  const { choice, figure, number, signed, lines, dots, scatter, cells } = charts;
  const data = shell.data();
  const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
  const paragraphs = (texts) => texts.map((text) => make("p", {}, text));

  const facts = () => {
    const methods = new Set(data.comparisons.flatMap((one) => one.methods));
    const running = data.under_way.length;
    const parts = [
      plural(data.runs.runs.length - running, "finished run"),
      ...(running ? [`${running.toLocaleString("en")} under way`] : []),
      plural(methods.size, "method"),
      plural(data.comparisons.length, "comparison"),
    ];
    if (data.left_out.length) parts.push(`${plural(data.left_out.length, "folder")} left out`);
    byId("facts").textContent = `${parts.join(" · ")} · ${data.made_with}`;
  };

  const MOST_LINKS = 8;
  const contents = () => {
    const links = [
      ["summary", "Summary"],
      ["results", "Results"],
      ...(data.comparisons.length > MOST_LINKS
        ? [["comparisons", plural(data.comparisons.length, "comparison")]]
        : data.comparisons.map((one, index) => [`comparison-${index}`, one.title])),
      ["methods", "Methods"],
      ["settings", "Settings and environment"],
    ];
    if (data.left_out.length) links.splice(1, 0, ["left-out", "Left out"]);
    if (data.under_way.length) links.splice(1, 0, ["under-way", "Under way"]);
    byId("contents").append(
      ...links.map(([id, title]) => make("li", {}, make("a", { href: `#${id}` }, title))),
    );
  };

  const summary = () => {
    byId("verdicts").append(
      ...data.comparisons.map((one) =>
        make("div", { class: "verdict" }, make("h3", {}, one.title), paragraphs(one.verdict)),
      ),
    );
    byId("units").textContent = data.units;
    list("under-way", "so far", data.under_way);
    list("left-out", "reason", data.left_out);
  };

  const list = (section, head, rows) => {
    byId(section).hidden = rows.length === 0;
    if (rows.length) byId(section).append(table({ head: ["folder", head], rows }).node);
  };

  const unfold = (title, build) => {
    const node = make("details", {}, make("summary", {}, title));
    node.addEventListener("toggle", () => node.append(...build()), { once: true });
    return node;
  };
  const FOLDED = 20;
  const folded = (title, size, node) => {
    const whole = make("details", { open: size <= FOLDED }, make("summary", {}, title), node);
    let was = null;
    addEventListener("beforeprint", () => {
      was = whole.open;
      whole.open = true;
    });
    addEventListener("afterprint", () => {
      whole.open = was ?? whole.open;
    });
    return whole;
  };

  const sections = [];
  const tables = data.tables.map((one) => ({ ...one, ...table(one) }));
  const filtering = () => {
    const unique = (name) => [
      ...new Set(tables.flatMap((one) => one.rows.map((row) => row[one.head.indexOf(name)]))),
    ];
    const [byData, byMethod, byText] = ["by-data", "by-method", "by-text"].map(byId);
    const options = (select, name, all) => {
      const names = unique(name);
      select.append(make("option", {}, all), ...names.map((one) => make("option", {}, one)));
      return () => (select.selectedIndex === 0 ? null : names[select.selectedIndex - 1]);
    };
    const [chosenData, chosenMethod] = [options(byData, "data", "all"), options(byMethod, "method", "all")];
    const apply = () => {
      const [wanted, method] = [chosenData(), chosenMethod()];
      const terms = byText.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const one of tables) {
        const [where, which] = [one.column("data"), one.column("method")];
        shown += one.filter(
          (row, words) =>
            (wanted === null || row[where] === wanted) &&
            (method === null || row[which] === method) &&
            terms.every((term) => words.includes(term)),
        );
      }
      sections.forEach(({ node, title }) => {
        node.hidden = wanted !== null && wanted !== title;
      });
      const all = tables.reduce((total, one) => total + one.size, 0);
      byId("shown").textContent =
        shown === all
          ? `All ${all.toLocaleString("en")} rows shown.`
          : `${shown.toLocaleString("en")} of ${plural(all, "row")} shown.`;
    };
    [byData, byMethod].forEach((select) => select.addEventListener("change", apply));
    byText.addEventListener("input", apply);
    byId("clear").addEventListener("click", () => {
      byData.selectedIndex = byMethod.selectedIndex = 0;
      byText.value = "";
      apply();
    });
    apply();
  };
  const results = () => {
    for (const one of tables) {
      one.node.id = `table-${one.name}`;
      const note = one.note ? make("p", { class: "note" }, one.note) : "";
      const whole =
        one.name === "runs"
          ? folded(`All ${plural(one.size, "run")}`, one.size, one.node)
          : one.name === "full"
            ? folded(
                "Further scores: specificity, precision, calibration",
                FOLDED + 1,
                make("div", {}, one.node, note),
              )
            : one.node;
      byId("tables").append(whole, one.name === "full" ? "" : note);
    }
  };

  // FedAvg and its control first, then by score: figures show the first few until others are chosen.
  const ranked = (one) => {
    const leading = ["FedAvg", "FedAvg-scaled"];
    const place = (name) => (leading.includes(name) ? leading.indexOf(name) : leading.length);
    const methods = one.methods.map((name, at) => ({ name, at, score: one.cost[at][1] ?? -1 }));
    methods.sort((a, b) => place(a.name) - place(b.name) || b.score - a.score || a.at - b.at);
    return methods.map((method, index) => ({ ...method, index }));
  };

  const curvesFigure = (one) => {
    let chosen = 0;
    const series = ranked(one);
    const made = figure({
      title: "Learning curves",
      series,
      caption:
        "Score on test data after each round, in points. Lines: mean over seeds; bands: ± one standard deviation.",
      controls:
        one.curves.length > 1
          ? [
              choice(
                "Score",
                one.curves.map((curve) => curve.title),
                (index) => {
                  chosen = index;
                  made.paint();
                },
              ),
            ]
          : [],
      plot: (width, visible) =>
        lines(
          width,
          visible.map(({ name, index, at }) => {
            const [mean, deviation] = one.curves[chosen].methods[at];
            return { name, index, mean, deviation };
          }),
          { label: `Learning curves: ${one.curves[chosen].title} after each round` },
        ),
    });
    return made.node;
  };

  // Of many classes, neighbors in frequency are drawn together.
  const MOST_ROWS = 40;
  const GROUPS = 20;
  const classRows = (found) => {
    const count = found.names.length;
    if (count <= MOST_ROWS)
      return found.names.map((name, at) => ({
        name,
        note: `${number(found.cases[at], 0)} training cases`,
        from: at,
        to: at + 1,
      }));
    return Array.from({ length: GROUPS }, (_, part) => {
      const [from, to] = [part, part + 1].map((edge) => Math.round((edge * count) / GROUPS));
      const most = Math.round(found.cases[from]),
        least = Math.round(found.cases[to - 1]);
      return {
        name: `classes ${from + 1}–${to}`,
        note: `${most.toLocaleString("en")} to ${least.toLocaleString("en")} training cases each`,
        from,
        to,
      };
    });
  };
  const averaged = (values, rows) =>
    rows.map(({ from, to }) => {
      const found = values.slice(from, to).filter((value) => value !== null);
      return found.length ? found.reduce((total, value) => total + value, 0) / found.length : null;
    });
  const classesFigure = (one) => {
    const found = one.classes;
    const rows = classRows(found);
    const kinds = [
      { title: "score", source: found.scores, across: `${found.metric}, points`, form: number, zero: false },
      {
        title: "difference to FedAvg",
        source: found.gains,
        across: `difference in ${found.metric}, points`,
        form: signed,
        zero: true,
      },
    ]
      .filter(({ source }) => source.some(Boolean))
      .reverse();
    let chosen = kinds[0];
    const grouped = rows.length < found.names.length ? " Classes of similar frequency are averaged." : "";
    const made = figure({
      title: "Results by class",
      series: ranked(one),
      caption: `Points of ${found.metric} on test data after the last round, from the most frequent to the rarest class; differences are paired by seed. Thin lines: ± one standard deviation over seeds.${grouped}`,
      controls:
        kinds.length > 1
          ? [
              choice(
                "Show",
                kinds.map(({ title }) => title),
                (index) => {
                  chosen = kinds[index];
                  made.paint();
                },
              ),
            ]
          : [],
      plot: (width, visible) =>
        dots(
          width,
          rows,
          visible
            .filter(({ at }) => chosen.source[at])
            .map(({ name, index, at }) => ({
              name,
              index,
              values: averaged(chosen.source[at][0], rows),
              deviation: rows.length === found.names.length ? chosen.source[at][1] : [],
            })),
          {
            label: `Results by class: ${chosen.title}`,
            zero: chosen.zero,
            across: chosen.across,
            digits: 2,
            form: chosen.form,
          },
        ),
    });
    return made.node;
  };

  const weightsFigure = (one) => {
    if (one.weights.length === 0) return null;
    let chosen = 0;
    const many =
      one.partition.of > one.partition.clients.length
        ? ` The ${one.partition.clients.length} largest of ${one.partition.of} clients.`
        : "";
    const made = figure({
      title: "Client weights",
      caption: `Weight of each client in the aggregation, in percent. Ring: by number of samples; dot: by the method. First seed, clients sorted from balanced to imbalanced labels.${many}`,
      controls:
        one.weights.length > 1
          ? [
              choice(
                "Method",
                one.weights.map((part) => part.method),
                (index) => {
                  chosen = index;
                  made.paint();
                },
              ),
            ]
          : [],
      plot: (width) => {
        const part = one.weights[chosen];
        const rows = part.clients.map((client, at) => ({
          name: `client ${client}`,
          note: plural(part.samples[at], "sample"),
        }));
        return dots(
          width,
          rows,
          [
            { name: "by size", index: 7, values: part.before },
            {
              name: part.method,
              index: ranked(one).find(({ name }) => name === part.method).index,
              values: part.after,
            },
          ],
          {
            label: `Client weights by size and by ${part.method}`,
            across: `weight, %, ${part.method}`,
            zero: true,
            joined: true,
            digits: 2,
          },
        );
      },
    });
    return made.node;
  };

  const clientsFigure = (one) => {
    if (one.partition.clients.length === 0) return null;
    const rows = one.partition.clients.map((client, at) => ({
      name: `client ${client}`,
      note: plural(one.partition.samples[at], "sample"),
    }));
    const series = ranked(one)
      .map(({ name, index, at }) => ({ name, index, values: one.clients[at] }))
      .filter((each) => each.values.length === rows.length);
    return figure({
      title: "Results by client",
      series,
      caption: `Points of ${one.classes.metric} after the last round of the first seed: the class scores, weighted by the label distribution of each client.`,
      plot: (width, visible) =>
        dots(width, rows, visible, {
          label: "Results by client",
          across: `${one.classes.metric}, points`,
          digits: 2,
        }),
    }).node;
  };

  const partitionFigure = (one) => {
    const part = one.partition;
    if (part.clients.length === 0) return null;
    const many =
      part.of > part.clients.length
        ? ` The ${part.clients.length} largest of ${part.of} clients are shown.`
        : "";
    return figure({
      title: "Training cases by client and class",
      caption: `Seed ${part.seed}. Stronger color: more cases (logarithmic scale).${many}`,
      plot: (width) =>
        cells(width, {
          rows: part.clients.map((client) => `client ${client}`),
          columns: part.classes,
          values: part.counts,
          label: "Training cases of each class at each client",
          across: "class",
          unit: "cases",
        }),
    }).node;
  };

  const costFigure = (one) => {
    const points = ranked(one).flatMap(({ name, index, at }) => {
      const [x, y, deviation] = one.cost[at];
      return x === null || y === null
        ? []
        : [
            {
              name,
              index,
              x,
              y,
              deviation,
              lines: [name, `${charts.spread(y, deviation)} points`, `${number(x, 1)} seconds per run`],
            },
          ];
    });
    return figure({
      title: "Time and score",
      series: points,
      caption: `Seconds in all rounds of a run, on the machine of that run, and ${one.metric} after the last round. Means over seeds; thin lines: ± one standard deviation.`,
      plot: (width, visible) =>
        scatter(width, visible, {
          label: `Seconds of a run against ${one.metric}`,
          across: "seconds per run",
          above: `${one.metric}, points`,
        }),
    }).node;
  };

  // Many methods stand under each other, where they would not fit side by side.
  const MOST_COLUMNS = 6;
  const classTable = (one) => {
    const found = one.classes;
    const score = ([mean, deviation], at) => [charts.spread(mean[at], deviation[at], 1), mean[at]];
    const cases = (at) => [number(found.cases[at], 0), found.cases[at]];
    const many = one.methods.length > MOST_COLUMNS;
    const head = ["class", "cases", ...(many ? ["method", found.metric] : one.methods)];
    const rows = () =>
      found.names.flatMap((name, at) =>
        many
          ? one.methods.map((method, index) => [name, cases(at), method, score(found.scores[index], at)])
          : [[name, cases(at), ...found.scores.map((scores) => score(scores, at))]],
      );
    return unfold(`All ${found.names.length} classes: ${found.metric} in points`, () => [
      table({ head, rows: rows() }).node,
    ]);
  };

  const scoreDetails = (one) =>
    one.details.length === 0
      ? null
      : unfold("All scores of the first run of each method: classes, intervals, confusion, sites", () =>
          one.details.map((run) =>
            unfold(run.name, () =>
              run.tables.flatMap((found) => [
                table(found).node,
                found.note ? make("p", { class: "note" }, found.note) : "",
              ]),
            ),
          ),
        );

  const comparison = (one, index) => {
    const figures = make("div", { class: "figures" });
    const title = make("h2", { id: `comparison-${index}-title` }, one.title);
    const node = make(
      "section",
      { id: `comparison-${index}`, "aria-labelledby": title.id },
      title,
      make("p", { class: "muted" }, one.setting),
      paragraphs(one.verdict),
      figures,
      classTable(one),
      scoreDetails(one),
      one.remarks.length ? [make("h3", {}, "Notes on the partition"), paragraphs(one.remarks)] : null,
    );
    later(figures, () =>
      figures.append(
        ...[curvesFigure, classesFigure, costFigure, weightsFigure, clientsFigure, partitionFigure]
          .map((build) => build(one))
          .filter(Boolean),
      ),
    );
    sections.push({ node, title: one.title });
    return node;
  };

  const words = (values) => Object.entries(values);
  const settings = () => {
    const { settings: common, environment, runs } = data.runs;
    const place = byId("settings");
    const lone = runs.length === 1;
    place.append(
      make(
        "p",
        {},
        lone
          ? "All settings of the run."
          : "Settings that all runs share; the list below shows how each run differs.",
      ),
      make(
        "div",
        { class: "pair" },
        table({ caption: "Settings", head: ["setting", "value"], rows: words(common) }).node,
        words(environment).length
          ? table({ caption: "Environment", head: ["name", "value"], rows: words(environment) }).node
          : null,
      ),
      make(
        "details",
        { open: runs.length <= FOLDED },
        make("summary", {}, "Settings of each run"),
        make(
          "div",
          {},
          runs.map((run) => unfold(run.name, () => runDetails(run, common, environment))),
        ),
      ),
    );
  };
  const runDetails = (run, common, environment) => {
    const marked = (own, shared, caption, head) => {
      const rows = [...words(own), ...words(shared)];
      return rows.length
        ? table({ caption, head, rows, differs: rows.map((_, at) => at < words(own).length) }).node
        : null;
    };
    return [
      make("p", { class: "path" }, run.path),
      make("p", { class: "path" }, `SHA-256 of the final model: ${run.sha256}`),
      make("p", { class: "path" }, `Repeat this run (in the folder of this page): ${run.command}`),
      make(
        "div",
        { class: "pair" },
        marked(run.settings, common, "Settings (marked: not shared by all runs)", ["setting", "value"]),
        marked(run.environment, environment, "Environment", ["name", "value"]),
      ),
    ];
  };

  const methods = () => byId("methods").append(table(data.methods).node);

  facts();
  contents();
  summary();
  results();
  byId("comparisons").append(...data.comparisons.map(comparison));
  filtering();
  methods();
  settings();
})();
