/** Words of agents and files in places of VS Code that would read more into them than text. */

import * as vscode from "vscode";

/** For labels, where `$(name)` would be drawn as an icon: a command's `$(date)` must be read as it stands. */
export function inLabel(text: string): string {
  return text.replaceAll("$(", "\\$(");
}

/** For notifications, where `[words](command:…)` would become a link that runs a command of the editor. */
export function inNotification(text: string): string {
  return text.replaceAll("](", "] (");
}

export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

/** What an error of the daemon says to a person. */
export function wordsOf(problem: unknown): string {
  const data = (problem as { data?: { message?: unknown } }).data;
  if (typeof data?.message === "string") {
    return data.message;
  }
  return problem instanceof Error ? problem.message : String(problem);
}

export function showProblem(problem: unknown): void {
  void tell("error", wordsOf(problem));
}

/** A notification whose words may come from anywhere. */
export function tell(kind: "info" | "warning" | "error", text: string, ...choices: string[]): Thenable<string | undefined> {
  const { showInformationMessage, showWarningMessage, showErrorMessage } = vscode.window;
  const show = { info: showInformationMessage, warning: showWarningMessage, error: showErrorMessage }[kind];
  return show(inNotification(text), ...choices);
}
