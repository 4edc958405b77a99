// get.js URL: prints the page, or ends with Node's own words.
require('https').get(process.argv[2], (response) => response.pipe(process.stdout)).on('error', (error) => {
  console.error(error.message);
  process.exit(1);
});
