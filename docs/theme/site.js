// Line breaks in inline code. A browser breaks `--wait` after its first hyphens, and `renewal(Renewal::Manual)` nowhere or anywhere.
// Here an option stays on one line, and a long name breaks where its parts meet. On a phone, the other columns of a table then have room.
(() => {
    const PART = 16; // characters that have room in the narrow column of a phone
    const split = (text) =>
        text
            .split(/(?<=::|[ (/.,={]|\w-|\w{3}_)/)
            .flatMap((part) => (part.length > PART ? part.split(/(?<=[a-z])(?=[A-Z])/) : part));
    const whole = (text) => {
        const node = document.createElement("span");
        node.className = "whole";
        node.textContent = text;
        return node;
    };
    for (const code of document.querySelectorAll("main code")) {
        const text = code.textContent;
        if (code.closest("pre") || code.childElementCount > 0) continue;
        const long = text.length > (code.closest("td") ? PART : 1.5 * PART);
        const parts = long ? split(text) : text.split(/(?<= )/);
        if (parts.length === 1 && !text.includes("-")) continue;
        code.replaceChildren(
            ...parts.flatMap((part) => {
                const word = part.trimEnd();
                const node = word.includes("-") && word.length <= 1.5 * PART ? whole(word) : word;
                return [node, part.slice(word.length), ...(long ? [document.createElement("wbr")] : [])];
            }),
        );
    }
    // A wide table scrolls on a phone. Its columns of text then get room, because a column of single words is hard to read.
    for (const cell of document.querySelectorAll("main td")) {
        const length = cell.textContent.length;
        if (cell.parentElement.cells.length > 3 && length > 40) cell.classList.add(length > 120 ? "long-text" : "text");
    }
})();
