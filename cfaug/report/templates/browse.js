  const $ = (id) => document.getElementById(id);
  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;  // never innerHTML: captions are strangers
    return element;
  };
  const option = (select, value, text) => {
    const element = make("option", "", text);
    element.value = value;
    select.append(element);
  };
  const makePagers = (turn) => ["start", "end"].map((id) => {
    const previous = make("button", "", "← previous"), next = make("button", "", "next →");
    const status = make("span");
    if (id === "start") status.setAttribute("role", "status");
    previous.type = next.type = "button";
    previous.addEventListener("click", () => turn(-1));
    next.addEventListener("click", () => turn(1));
    $(id).append(previous, next, status);
    return { previous, next, status };
  });
  const showPlace = (pagers, from, to, count, what) => {
    const text = count
      ? `${(from + 1).toLocaleString("en")}–${to.toLocaleString("en")} of ${count.toLocaleString("en")}`
      : `0 ${what}`;
    for (const pager of pagers) {
      pager.status.textContent = text;
      pager.previous.disabled = from === 0;
      pager.next.disabled = to >= count;
    }
  };
  const picture = (about, alt) => {
    const box = make("div", "picture"), image = make("img", about.q ? "pixelated" : "");
    image.src = `data:image/webp;base64,${about.i}`;
    image.width = about.w;
    image.height = about.h;
    image.alt = alt;
    box.append(image);
    return box;
  };
  const captioned = (pieces) => {
    const words = make("figcaption");
    pieces.forEach((piece, place) => words.append(place % 2 ? make("mark", "", piece) : piece));
    return words;
  };
  const askedWords = () => $("text").value.toLowerCase().split(/\s+/).filter(Boolean);
  // Draws what find() returns, a page at a time, whenever a control changes; returns how to do it again.
  // box: id of where cards go; card: draws one; what: their name; top: shows the page's top; reset: of controls.
  const browse = ({ box, what, one, find, card, top, reset = () => {} }) => {
    const PAGE = 24;
    let found = [], page = 0;
    const pagers = makePagers((by) => turn(by));
    const draw = () => {
      const from = page * PAGE, to = Math.min(found.length, from + PAGE);
      const cards = found.slice(from, to).map(card);
      $(box).replaceChildren(...(cards.length ? cards : [make("p", "empty", `No ${one} matches.`)]));
      showPlace(pagers, from, to, found.length, what);
    };
    const turn = (by) => {
      const last = Math.max(0, Math.ceil(found.length / PAGE) - 1);
      const next = Math.min(last, Math.max(0, page + by));
      if (next === page) return;
      page = next;
      draw();
      top();
    };
    const filter = () => {
      found = find();
      page = 0;
      draw();
    };
    const stretch = () => { if ($("stretch")) document.body.classList.toggle("stretch", $("stretch").checked); };
    $("controls").addEventListener("submit", (event) => event.preventDefault());
    for (const kind of ["input", "change"]) {
      $("controls").addEventListener(kind, (event) => {
        if (event.target.id === "stretch") return void stretch();
        const waits = event.target.tagName === "SELECT" || event.target.type === "checkbox";
        if ((kind === "change") === waits) filter();
      });
    }
    $("controls").addEventListener("reset", () => setTimeout(() => {
      reset();
      stretch();
      filter();
    }));
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const typing = event.target.matches("input:not([type=checkbox]), select");
      if (event.key === "Escape" && event.target === $("text")) $("text").blur();
      if (typing) return;
      if (event.key === "/") { event.preventDefault(); $("text").focus(); }
      if (event.key === "ArrowRight") turn(1);
      if (event.key === "ArrowLeft") turn(-1);
    });
    filter();
    return filter;
  };
