// The keyboard, and what htmx needs told. Every page reads and works without this.
"use strict";

(() => {
  const items = () => [...document.querySelectorAll("[data-item]")].filter((item) => item.offsetParent !== null);
  const current = () => document.querySelector("[data-item].current");
  const typing = (target) => target.closest("input, textarea, select, [contenteditable]") !== null;

  const announce = (text) => {
    const place = document.getElementById("announce");
    if (!place) return;
    place.textContent = text;
    place.hidden = false;
    clearTimeout(announce.timer);
    announce.timer = setTimeout(() => { place.hidden = true; }, 6000);
  };

  const choose = (item) => {
    if (!item) return;
    current()?.classList.remove("current");
    item.classList.add("current");
    // What Enter opens comes before what merely stands further up.
    const opener = item.querySelector("[data-focus]") ?? item.querySelector("[data-open]")
      ?? item.querySelector("a, summary, button");
    (opener ?? item).focus({ preventScroll: true });
    item.scrollIntoView({ block: "nearest" });
  };

  const step = (by) => {
    const all = items();
    if (!all.length) return;
    const at = all.indexOf(current());
    if (at >= 0) return choose(all[Math.max(0, Math.min(all.length - 1, at + by))]);
    const below = all.findIndex((item) => item.getBoundingClientRect().bottom > 80);
    choose(all[by > 0 ? Math.max(0, below) : all.length - 1]);
  };

  const press = (selector) => {
    const button = (current() ?? document).querySelector(selector);
    if (button && !button.disabled) button.click();
    return button !== null;
  };

  let busy = false;
  const typed = [];

  const keys = {
    "/": () => {
      const box = document.getElementById("q");
      if (box) { box.focus(); box.select(); } else { location.assign("/hub"); }
    },
    "?": () => document.querySelector("[data-keys]")?.click(),
    j: () => step(1),
    k: () => step(-1),
    Enter: () => current()?.querySelector("[data-open]")?.click(),
    x: () => press("[data-select]"),
    a: () => press("[data-accept]"),
    r: () => press("[data-reject]"),
    u: () => {
      const undo = document.querySelector("[data-undo]");
      if (undo) undo.click(); else if (document.getElementById("review")) announce("Nothing is left to undo.");
    },
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.key === "Escape" && typing(event.target)) { event.target.blur(); return; }
    if (typing(event.target) && event.target.type !== "checkbox") return;
    const act = keys[event.key];
    // A link or button that has the focus answers to Enter by itself.
    if (!act || (event.key === "Enter" && event.target.closest("a, button, summary"))) return;
    event.preventDefault();
    // While the queue is on its way, what is typed ahead waits for the new one.
    if (busy) { typed.push(act); return; }
    act();
  });

  document.addEventListener("focusin", (event) => {
    const item = event.target.closest("[data-item]");
    if (item && item !== current() && event.target.matches(":focus-visible")) {
      current()?.classList.remove("current");
      item.classList.add("current");
    }
  });

  // A link to a summary in the tree opens it.
  const openTarget = () => {
    const target = location.hash ? document.getElementById(location.hash.slice(1)) : null;
    if (target instanceof HTMLDetailsElement) target.open = true;
    target?.closest("[data-item]")?.classList.add("current");
  };
  addEventListener("hashchange", openTarget);
  openTarget();

  const failed = (text) => { busy = false; typed.length = 0; announce(text); };
  document.addEventListener("htmx:responseError", () => failed("That did not work; load the page again."));
  document.addEventListener("htmx:sendError", () => failed("The service can not be reached."));
  // The queue comes back without what was decided: the reader stays at the same place in it.
  let place = -1;
  document.addEventListener("htmx:beforeRequest", (event) => { busy = event.detail.target?.id === "review"; });
  document.addEventListener("htmx:beforeSwap", (event) => {
    // The cookie has ended: the whole page goes to the sign-in page, not a part of it.
    if (new URL(event.detail.xhr.responseURL).pathname === "/hub/sign-in") {
      event.detail.shouldSwap = false;
      location.reload();
      return;
    }
    place = event.detail.target?.id === "review" ? items().indexOf(current()) : -1;
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    const queue = document.getElementById("review");
    if (!queue || !(event.target === queue || event.detail.elt === queue)) return;
    const said = queue.querySelector("[data-say]");
    if (said) announce(said.dataset.say);
    const all = items();
    if (place >= 0 && all.length) choose(all[Math.min(place, all.length - 1)]);
    goOn();
  });

  const goOn = () => {
    busy = false;
    while (typed.length && !busy) typed.shift()();
  };
})();
