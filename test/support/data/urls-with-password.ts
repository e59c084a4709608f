export const PASSWORD = 'open5esame';

/** Database URLs that cannot be opened. They contain the password in all positions. */
export const urlsWithPassword = [
  ['a server that is not there', `postgres://u:${PASSWORD}@127.0.0.1:1/plants`],
  ['several that are not', `postgres://u:${PASSWORD}@127.0.0.1:1,127.0.0.1:2/plants`],
  ['an unescaped @ in the user', `postgres://u@v:${PASSWORD}@127.0.0.1:1/plants`],
  ['an @ in an option', `postgres://u:${PASSWORD}@127.0.0.1:1/plants?application_name=u@v`],
  ['one behind a query', `postgres://u@127.0.0.1:1/plants?password=${PASSWORD}`],
  ['a port that is none', `postgres://u:${PASSWORD}@127.0.0.1:port/plants`],
  ['an unescaped @', `postgres://u:${PASSWORD}@${PASSWORD}@127.0.0.1:1/plants`],
  ['an unescaped /', `postgres://u:${PASSWORD}/${PASSWORD}@127.0.0.1:1/plants`],
  ['a percent sign', `postgres://u:${PASSWORD}%@127.0.0.1:1/plants`],
  ['another kind of database', `mysql://u:${PASSWORD}@127.0.0.1/plants`],
] as const;
