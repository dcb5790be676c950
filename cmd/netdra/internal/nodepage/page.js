(function () {
  "use strict";
  var box = document.getElementById("filter"), told = document.getElementById("told");
  var rows = Array.from(document.querySelectorAll("[data-row]")), texts = rows.map(function (row) { return row.textContent.toLowerCase(); });
  document.getElementById("find").hidden = false;
  box.addEventListener("input", function () {
    var wanted = box.value.trim().toLowerCase(), shown = 0;
    rows.forEach(function (row, i) {
      row.hidden = !texts[i].includes(wanted);
      if (!row.hidden) { shown++; }
    });
    told.textContent = wanted === "" ? "" : shown + " of " + rows.length + " shown";
  });
  addEventListener("beforeprint", function () { document.querySelectorAll("#claims details").forEach(function (d) { d.open = true; }); });
})();
