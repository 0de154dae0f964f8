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
