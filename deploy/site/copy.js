// A button at each block of code. Of a console it copies the commands, without prompts and output.
function commands(text) {
  const found = [];
  let goesOn = false;
  for (const line of text.split("\n")) {
    if (line.startsWith("$ ") || (goesOn && line.startsWith("> "))) found.push(line.slice(2));
    else if (goesOn) found.push(line);
    else continue;
    goesOn = line.endsWith("\\");
  }
  return found.length ? found.join("\n") : text.trimEnd();
}

for (const block of document.querySelectorAll("pre")) {
  const text = block.textContent; // before the button is a part of it
  const button = document.createElement("button");
  button.className = "copy";
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(commands(text));
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  block.append(button);
}
