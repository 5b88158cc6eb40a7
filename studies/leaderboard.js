"use strict";

// The leaderboard: one sortable table for each grid, and a filter over all of them.
(() => {
  const { byId, make, table } = shell;
  const data = JSON.parse(byId("data").textContent);
  const boards = data.boards.map((board) => {
    const built = table(board.table);
    byId("contents").append(make("li", {}, make("a", { href: `#${board.name}` }, board.title)));
    byId("boards").append(
      make(
        "section",
        { id: board.name },
        make("h2", {}, board.title),
        make("p", { class: "note" }, board.caption),
        make("p", {}, make("code", {}, board.command)),
        make("p", {}, make("code", {}, board.verify)),
        built.node,
      ),
    );
    return built;
  });
  byId("words").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const built of boards) built.filter((_, words) => wanted.every((word) => words.includes(word)));
  });
})();
